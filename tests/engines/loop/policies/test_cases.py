"""Small inputs that broke other schedulers, for every policy that they touch, built by name."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest
from policies_by_name import CONTEXT, POLICIES, PREEMPTING, policy_of

from engines.api import Request
from engines.loop.kv.contiguous import ContiguousCache
from engines.loop.kv.paged import PagedCache


def memory_of(allocator, num_blocks, block_size):
    if allocator == "paged":
        return PagedCache(num_blocks, block_size)
    return ContiguousCache(num_blocks, block_size, reserve=allocator, max_model_len=CONTEXT)


@pytest.mark.parametrize("allocator", ["paged", "exact", "pow2"])
@pytest.mark.parametrize("name", POLICIES)
def test_one_that_can_never_fit_does_not_hold_up_the_next(lab, request_of, name, allocator):
    """128 positions: 100 + 60 tokens are refused at the door, 10 + 5 behind them are served."""
    policy = policy_of(name, max_num_seqs=2)
    world = lab(policy, cache=memory_of(allocator, 8, 16), max_model_len=256)
    run = world.play([request_of("big", 100, 60), request_of("small", 10, 5)])
    assert run.finishes["big"].status == "rejected"
    assert run.finishes["small"].status == "ok"
    assert len(run.tokens()["small"]) == 5


@pytest.mark.parametrize("name", POLICIES)
def test_a_prompt_beyond_the_budget_is_cut_or_refused_with_both_numbers(lab, request_of, name):
    policy = policy_of(
        name, max_num_seqs=2, max_num_batched_tokens=32, enable_chunked_prefill="false"
    )
    run = lab(policy).play([request_of("a", 40, 2), request_of("b", 4, 2)])
    assert run.finishes["b"].status == "ok"
    if policy.limits.max_num_batched_tokens is None:
        assert run.finishes["a"].status == "ok"
    else:
        assert run.finishes["a"].status == "rejected"
        because = "with enable_chunked_prefill=false" if name == "chunked" else ": no prompt is cut"
        assert run.finishes["a"].reason == (
            "prompt 40 + max_tokens 2 = 42 tokens exceed the 33 that the policy can serve "
            f"(max_num_batched_tokens{'' if because[0] == ':' else ' '}{because})"
        )


@pytest.mark.parametrize("name", POLICIES)
def test_an_empty_queue_at_the_start_is_no_end(lab, request_of, name):
    """Served when it comes, and its clock starts then."""
    policy = policy_of(name, max_num_seqs=2, max_delay_ms=0)
    run = lab(policy).play([request_of("late", 4, 2, scheduled_s=2.0)])
    assert run.times()["late"] == [3.0, 4.0]
    assert run.finishes["late"].stats.queue_s == 0.0


@pytest.mark.parametrize("swap", ["recompute", "swap"])
@pytest.mark.parametrize("name", POLICIES)
def test_pressure_changes_no_answer(lab, request_of, answer_of, name, swap):
    """Six blocks of 16; two requests of 16 + 48 fill four each."""
    policy = policy_of(name, max_num_seqs=2, preemption=swap)
    requests = [request_of("a", 16, 48), request_of("b", 16, 48)]
    world = lab(policy, num_blocks=6, block_size=16)
    run = world.play(requests)
    assert run.tokens() == {request.request_id: answer_of(request) for request in requests}
    preempted = {name: finish.stats.num_preemptions for name, finish in run.finishes.items()}
    assert preempted == ({"a": 0, "b": 1} if name in PREEMPTING else {"a": 0, "b": 0})
    assert world.cache.free_blocks == 6


@pytest.mark.parametrize("name", PREEMPTING)
def test_the_pause_of_a_preempted_one_shows_once(lab, request_of, name):
    """Its first token stays where it was; prompt tokens count once, recomputed ones apart."""
    policy = policy_of(name, max_num_seqs=2)
    run = lab(policy, num_blocks=6, block_size=16).play(
        [request_of("a", 16, 48), request_of("b", 16, 48)]
    )
    times = run.times()["b"]
    stats = run.finishes["b"].stats
    assert times[0] == 1.0
    assert stats.preempted_s > 0
    assert max(b - a for a, b in pairwise(times)) >= stats.preempted_s
    assert sum(row.prompt for row in run.rows) == 32
    assert sum(row.recomputed for row in run.rows) > 0
    assert stats.max_stall_cause == "preemption"


@pytest.mark.parametrize("name", PREEMPTING)
def test_decodes_beyond_the_budget_take_turns(lab, request_of, name):
    """Budget 4, six decodes. Prefill-first refuses what a recompute could not fit."""
    policy = policy_of(name, max_num_seqs=6, max_num_batched_tokens=4)
    answer = 10 if name == "chunked" else 4
    run = lab(policy).play([request_of(f"r{i}", 1, answer) for i in range(6)])
    assert max(row.positions for row in run.rows) <= 4
    assert all(len(tokens) == answer for tokens in run.tokens().values())
    assert max(b - a for times in run.times().values() for a, b in pairwise(times)) <= 3.0


def test_a_decode_goes_on_beside_a_queue_of_long_prompts(lab, request_of):
    """Budget 32: a prompt of 320 takes 11 steps, 31 tokens beside each token of the decode."""
    requests = [
        request_of("decode", 1, 80),
        *(request_of(f"p{i}", 320, 1, scheduled_s=1.5) for i in range(5)),
    ]
    run = lab(policy_of("chunked", max_num_batched_tokens=32)).play(requests)
    assert max(b - a for a, b in pairwise(run.times()["decode"])) == 1.0
    assert run.times()["p0"] == [2.0 + 11]


@pytest.mark.parametrize("name", POLICIES)
def test_a_full_prefix_hit_computes_what_is_left_of_its_last_block(lab, name):
    """32 tokens sent twice, blocks of 16: 16 are found, 16 computed, one answer."""
    policy = policy_of(name, max_num_seqs=1)
    requests = [Request(f"r{i}", tuple(range(32)), 3) for i in range(2)]
    run = lab(policy, num_blocks=10, prefix_caching=True).play(requests)
    assert run.finishes["r0"].stats.prefix_hit_tokens == 0
    assert run.finishes["r1"].stats.prefix_hit_tokens == 16
    assert run.tokens()["r0"] == run.tokens()["r1"]


@pytest.mark.parametrize("block_size", [1, 7, 16])
@pytest.mark.parametrize("name", POLICIES)
def test_two_hundred_mixed_requests_leave_every_block_free(lab, answer_of, name, block_size):
    draw = random.Random(7)
    requests = [
        Request(
            f"r{i}",
            tuple(draw.randrange(4096) for _ in range(draw.randint(1, 40))),
            draw.randint(1, 30),
            i * 0.7,
        )
        for i in range(200)
    ]
    num_blocks = -(-160 // block_size)
    policy = policy_of(name, max_num_seqs=8, preemption="swap" if block_size == 7 else "recompute")
    world = lab(policy, num_blocks=num_blocks, block_size=block_size)
    run = world.play(requests)
    assert run.tokens() == {request.request_id: answer_of(request) for request in requests}
    assert (sum(row.preemptions for row in run.rows) > 0) == (name in PREEMPTING)
    assert world.cache.free_blocks == num_blocks
