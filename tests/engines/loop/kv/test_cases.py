"""Inputs that broke other memories, for every allocator: growth, leaks, runs one after another."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from loop_watching import MEMORIES, memory_of
from policies_by_name import POLICIES, PREEMPTING, policy_of

from engines.loop.kv.contiguous import RESERVES, ContiguousCache
from engines.loop.kv.paged import PagedCache
from engines.loop.policies.chunked import ChunkedPolicy
from engines.loop.policies.orders import PRIORITY
from engines.loop.policies.rules import Rules

CONTEXT = 96


@pytest.mark.parametrize("memory", MEMORIES)
@pytest.mark.parametrize("name", POLICIES)
def test_a_run_after_a_reset_does_just_what_the_first_did(lab, request_of, name, memory):
    """Case L1: the same prompts again on a live engine, with prefixes kept or not."""
    cache = memory_of(memory, 30, 8, CONTEXT)
    budget = 32 if name == "chunked" else 64
    policy = policy_of(name, max_num_seqs=4, max_num_batched_tokens=budget, max_delay_ms=0)
    world = lab(policy, cache=cache, block_size=8, num_blocks=30)
    shared = list(range(40))
    requests = [request_of(f"r{i}", [*shared, i], 5 + i) for i in range(6)]

    def rows():
        world.sink.events.clear()
        now_s = world.clock.now()
        run = world.play([replace(r, scheduled_s=now_s) for r in requests])
        keys = ("executed", "prompt", "num_running", "tokens_held", "blocks_used")
        hits = [run.finishes[r.request_id].stats.prefix_hit_tokens for r in requests]
        return [[getattr(row, key) for key in keys] for row in run.rows], hits

    first = rows()
    world.loop.reset()
    assert rows() == first
    assert (max(first[1]) > 0) == (memory == "prefixes")


@pytest.mark.parametrize("name", POLICIES)
def test_a_region_grows_into_its_own_blocks_though_none_is_free(lab, request_of, answer_of, name):
    """Case P1: blocks of 4; 3 -> 4 and 4 -> 5 both lie in what was reserved for 3 + 3 tokens."""
    a, b = request_of("a", 3, 3), request_of("b", 3, 3)
    cache = ContiguousCache(3, 4, reserve="exact", max_model_len=CONTEXT)
    policy = policy_of(name, max_num_seqs=8, max_delay_ms=0)
    run = lab(policy, cache=cache, block_size=4, num_blocks=3).play([a, b])
    assert run.tokens() == {"a": answer_of(a), "b": answer_of(b)}
    assert [(row.num_running, row.blocks_free) for row in run.rows] == [(1, 1)] * 3 + [(1, 1)] * 3
    assert sum(row.preemptions for row in run.rows) == 0


@pytest.mark.parametrize("name", POLICIES)
def test_the_last_place_of_a_block_is_used_before_another_is_asked_for(
    lab, request_of, answer_of, name
):
    """Case P1, two blocks of 4 for 3 + 3 tokens twice: both grow 3 -> 4 with none free.

    For 4 -> 5 the second makes place; where the answer is reserved it waits from the beginning.
    """
    a, b = request_of("a", 3, 3), request_of("b", 3, 3)
    policy = policy_of(name, max_num_seqs=8, max_delay_ms=0)
    run = lab(policy, cache=PagedCache(2, 4), block_size=4, num_blocks=2).play([a, b])
    assert run.tokens() == {"a": answer_of(a), "b": answer_of(b)}
    steps = [(row.num_running, row.tokens_held, row.preemptions) for row in run.rows]
    if name in PREEMPTING:
        assert steps[:3] == [(2, 6, 0), (2, 8, 0), (1, 5, 1)]
    else:
        assert steps == [(1, 3, 0), (1, 4, 0), (1, 5, 0)] * 2


@pytest.mark.parametrize("preemption", ["recompute", "swap"])
@pytest.mark.parametrize("block_size", [1, 7, 16])
@pytest.mark.parametrize("reserve", RESERVES)
def test_two_hundred_mixed_requests_leave_one_gap(
    lab, request_of, answer_of, reserve, block_size, preemption
):
    """Case P5; the more urgent put others out, also to the host, and these come back elsewhere."""
    draw = random.Random(7)
    requests = [
        request_of(
            f"r{i}",
            draw.randint(1, 50),
            draw.randint(1, 40),
            scheduled_s=draw.uniform(0, 500),
            priority=draw.randint(0, 3),
        )
        for i in range(200)
    ]
    num_blocks = -(-250 // block_size)
    cache = ContiguousCache(num_blocks, block_size, reserve=reserve, max_model_len=CONTEXT)
    policy = ChunkedPolicy(16, 64, rules=Rules(order=PRIORITY, preemption=preemption))
    run = lab(policy, cache=cache, block_size=block_size, num_blocks=num_blocks).play(requests)
    assert sum(row.preemptions for row in run.rows) > 0
    assert run.tokens() == {r.request_id: answer_of(r) for r in requests}
    swapped = sum(f.stats.swapped_tokens for f in run.finishes.values())
    assert (swapped > 0) == (preemption == "swap")
    assert cache.gaps.stretches() == [(0, num_blocks)]
    assert cache.tables == {}
