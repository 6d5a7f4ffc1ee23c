"""The door's rules that all engines share."""

from __future__ import annotations

import pytest

from engines.admission import answer_bound, context_refusal
from engines.api import Request
from engines.generate_batching import Bounds
from engines.loop.admission import Door
from engines.loop.kv.paged import PagedCache


@pytest.mark.parametrize(
    ("prompt", "answer", "reason"),
    [
        (0, 4, "the prompt is empty; expected at least 1 token"),
        (5, 0, "max_tokens is 0; expected at least 1"),
        (60, 5, "prompt 60 + max_tokens 5 = 65 tokens exceed the context of 64"),
        (60, 4, ""),
        (1, 1, ""),
    ],
)
def test_every_engine_refuses_with_the_same_words(prompt: int, answer: int, reason: str):
    request = Request("a", (3,) * prompt, answer)
    assert context_refusal(prompt, answer, 64) == reason
    assert Bounds(64, 1000).refusal(request) == reason
    assert Door(64, PagedCache(100, 16)).refusal(request) == reason


@pytest.mark.parametrize(
    ("prompt", "max_tokens", "bound"), [(10, 3, 3), (10, None, 54), (64, None, 1), (80, None, 1)]
)
def test_an_answer_without_a_bound_has_what_the_prompt_leaves(
    prompt: int, max_tokens: int | None, bound: int
):
    assert answer_bound(Request("a", (3,) * prompt, max_tokens), 64) == bound
