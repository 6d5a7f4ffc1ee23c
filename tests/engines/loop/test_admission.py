"""The door on numbers alone: what just fits comes in, one token more does not."""

from __future__ import annotations

import pytest

from engines.loop.admission import Door
from engines.loop.kv.contiguous import ContiguousCache
from engines.loop.kv.paged import PagedCache


def paged(num_blocks, block_size):
    return PagedCache(num_blocks, block_size)


def pow2(num_blocks, block_size):
    return ContiguousCache(num_blocks, block_size, reserve="pow2", max_model_len=999)


ROOMY = Door(max_model_len=64, cache=paged(8, 16))  # 128 positions


def test_a_policy_says_itself_why_it_serves_no_longer_one(request_of):
    door = Door(999, paged(99, 16), 33, "three slots of eleven")
    assert door.refusal(request_of("a", 30, 4)).endswith("can serve (three slots of eleven)")
    door = Door(999, paged(99, 16), 33)
    assert door.refusal(request_of("a", 30, 4)).endswith("that the policy can serve")


@pytest.mark.parametrize(
    ("door", "prompt", "fits", "too_much", "words"),
    [
        (ROOMY, 60, 4, 5, "60 + max_tokens 5 = 65 tokens exceed the context of 64"),
        (Door(999, paged(8, 16)), 100, 29, 30, "need 9 blocks of 16, the pool has 8"),
        (Door(999, paged(8, 1)), 5, 4, 5, "need 9 blocks of 1, the pool has 8"),
        (Door(999, pow2(9, 16)), 30, 99, 100, "need a region of 16 blocks of 16 (reserve=pow2)"),
        (
            Door(999, paged(99, 16), 33),
            30,
            3,
            4,
            "34 tokens exceed the 33 that the policy can serve",
        ),
    ],
)
def test_what_just_fits_comes_in(request_of, door, prompt, fits, too_much, words):
    assert door.refusal(request_of("a", prompt, fits)) == ""
    assert words in door.refusal(request_of("a", prompt, too_much))


@pytest.mark.parametrize(
    ("door", "prompt", "answer"),
    [
        (ROOMY, 10, 54),  # the context
        (Door(999, paged(2, 16)), 10, 23),  # the pool: 33 tokens, of which the last is never fed
        (Door(999, pow2(9, 16)), 30, 99),  # a region: 129 tokens of 128 positions
        (Door(999, paged(99, 16), 33), 30, 3),  # the policy
        (Door(999, paged(2, 16), 20), 10, 10),
    ],
)
def test_an_answer_without_a_bound_takes_all_that_the_tightest_leaves(
    request_of, door, prompt, answer
):
    request = request_of("a", prompt, None)
    assert door.max_tokens(request) == answer
    assert door.refusal(request) == ""


@pytest.mark.parametrize("prompt", [64, 65])
def test_a_prompt_that_leaves_no_token_is_refused(request_of, prompt):  # D5
    assert "exceed the context of 64" in ROOMY.refusal(request_of("a", prompt, None))
    assert "exceed the context of 64" in ROOMY.refusal(request_of("a", prompt, 1))
