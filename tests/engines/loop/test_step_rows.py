"""What a step's row says of its time, its memory and those around it."""

from __future__ import annotations

from itertools import pairwise

from engines.api import EngineInfo
from engines.loop.executors.api import StepResult
from engines.loop.executors.cost_model import StepCost
from engines.loop.kv.contiguous import ContiguousCache
from engines.loop.loop import EngineLoop
from engines.loop.plan import Plan
from engines.loop.policies.chunked import ChunkedPolicy
from workloads.sources import ScheduledSource


class Slow:
    """A policy that thinks for a quarter of a second."""

    def __init__(self, inner, clock):
        self.inner, self.clock = inner, clock
        self.name, self.limits = inner.name, inner.limits

    def initial_state(self):
        return self.inner.initial_state()

    def plan(self, view, state):
        self.clock.advance(0.25)
        return self.inner.plan(view, state)


class Timed:
    """Zeros, in given times."""

    def submit(self, batch):
        self.batch = batch
        return self

    def result(self):
        tokens = [[0] if row.sample else [] for row in self.batch.rows]
        return StepResult(tokens=tokens, prepare_s=0.125, compute_s=2.0, copy_s=0.0625)


def test_thinking_packing_computing_and_copying_are_told_apart(lab, request_of):
    world = lab(ChunkedPolicy(4, 64))
    policy = Slow(ChunkedPolicy(4, 64), world.clock)
    world.loop = EngineLoop(policy, world.cache, Timed(), EngineInfo("loop", {}, 100, 4))
    (row, *_) = world.play([request_of("a", 4, 2)]).rows
    assert (row.schedule_s, row.pack_s, row.compute_s, row.copy_s) == (0.25, 0.125, 2.0, 0.0625)
    assert (row.start_s, row.end_s) == (0.0, 0.25)


def test_taking_requests_in_is_no_scheduling(lab, request_of):
    """A source that takes a second to hand out what has arrived; the step starts before."""
    world = lab(ChunkedPolicy(4, 64))
    source = ScheduledSource([request_of("a", 4, 2)], world.clock)
    take = source.take

    def slow_take(now_s, limit):
        world.clock.advance(1.0)
        return take(now_s, limit)

    source.take = slow_take
    rows = world.run(source).rows
    assert [row.schedule_s for row in rows] == [0.0, 0.0]
    assert [row.end_s - row.start_s for row in rows] == [2.0, 2.0]


def test_computing_of_a_simulated_step_is_what_the_clock_moved_by(lab, request_of):
    for row in lab(ChunkedPolicy(4, 64)).play([request_of("a", 4, 3)]).rows:
        assert row.compute_s == row.end_s - row.start_s == 1.0


def test_a_row_counts_those_who_run_and_those_who_wait(lab, request_of):
    requests = [request_of(f"r{i}", 4, 3) for i in range(5)]
    rows = lab(ChunkedPolicy(2, 64)).play(requests).rows
    assert [row.num_running for row in rows] == [2, 2, 2, 2, 2, 2, 1, 1, 1]
    assert [row.num_waiting for row in rows] == [3, 3, 3, 1, 1, 1, 0, 0, 0]


def test_who_lies_on_the_host_waits(lab, request_of):
    class SwapOnce:
        """Two start; then `b` goes to the host until `a` has ended."""

        name, limits = "swap-once", ChunkedPolicy(2, 64).limits

        def initial_state(self):
            return None

        def plan(self, view, state):
            names = [s.request_id for s in view.running]
            if names == ["a", "b"]:
                return Plan(preempt={"b": "swap"}, work={"a": 1}), None
            if names:
                return Plan(work=dict.fromkeys(names, 1)), None
            if view.swapped:
                return Plan(resume={"b": 0}, work={"b": 1}), None
            waiting = list(view.waiting)
            return Plan(
                admit={s.request_id: 0 for s in waiting},
                work={s.request_id: s.num_known for s in waiting},
            ), None

    rows = lab(SwapOnce()).play([request_of("a", 4, 3), request_of("b", 4, 3)]).rows
    assert [(row.num_running, row.num_waiting) for row in rows] == [
        (2, 0),
        (1, 1),
        (1, 1),
        (1, 0),
        (1, 0),
    ]


def test_tokens_are_held_in_what_is_reserved_for_them(lab, request_of):
    rows = (
        lab(ChunkedPolicy(4, 64), num_blocks=10, block_size=4)
        .play([request_of("a", 4, 3), request_of("b", 5, 1)])
        .rows
    )
    held = [
        (row.tokens_held, row.tokens_reserved, row.blocks_used, row.blocks_free) for row in rows
    ]
    assert held == [(9, 12, 3, 7), (5, 8, 2, 8), (6, 8, 2, 8)]


def test_what_is_reserved_and_not_held_is_lost_inside_blocks_or_to_reservation(lab, request_of):
    """A prompt of 9 in pieces of 4: its three blocks are reserved at once and begun in turn."""
    run = lab(ChunkedPolicy(4, 4), num_blocks=10, block_size=4).play([request_of("a", 9, 2)])
    lost = [(r.tokens_held, r.lost_inside_blocks, r.lost_to_reservation) for r in run.rows]
    assert lost == [(4, 0, 8), (8, 0, 4), (9, 3, 0), (10, 2, 0)]
    assert {row.lost_to_fragmentation for row in run.rows} == {0}


def test_free_blocks_that_do_not_lie_together_are_lost_to_fragmentation(lab, request_of):
    """Three regions of two blocks of four; between the two that stay nobody long fits."""
    cache = ContiguousCache(6, 4, reserve="exact", max_model_len=24)
    requests = [
        request_of("a", 7, 2),  # ends after two steps
        request_of("b", 4, 5),
        request_of("c", 7, 2),
        request_of("long", 9, 4),  # three blocks
    ]
    run = lab(ChunkedPolicy(4, 64), num_blocks=6, block_size=4, cache=cache).play(requests)
    seen = [(r.num_running, r.blocks_free, r.lost_to_fragmentation) for r in run.rows]
    assert seen[:5] == [(3, 0, 0), (3, 0, 0), (1, 4, 16), (1, 4, 16), (1, 4, 16)]
    assert [(r.num_running, r.lost_to_fragmentation) for r in run.rows[5:]] == [(1, 0)] * 4
    assert {f.status for f in run.finishes.values()} == {"ok"}


def test_blocks_are_used_cached_or_free_and_all_of_them_are_one(lab, request_of):
    world = lab(ChunkedPolicy(4, 64), num_blocks=10, block_size=4, prefix_caching=True)
    rows = world.play([request_of("a", 8, 1), request_of("b", 4, 2, scheduled_s=5.0)]).rows
    seen = [(row.blocks_used, row.blocks_cached, row.blocks_free) for row in rows]
    assert seen == [(2, 0, 8), (1, 2, 7), (2, 2, 6)]


def test_a_prompt_is_prefill_even_one_token_at_a_time(lab, request_of):
    rows = lab(ChunkedPolicy(4, 1)).play([request_of("a", 3, 2)]).rows
    assert [(row.prefill_tokens, row.decode_tokens) for row in rows] == [(1, 0)] * 3 + [(0, 1)]


def test_a_wait_for_the_token_budget_is_the_cause_of_its_gap(lab, request_of):
    """Six decodes of which four get a token: who had to wait longer than a step knows why."""
    run = lab(ChunkedPolicy(6, 4)).play([request_of(f"r{i}", 1, 10) for i in range(6)])
    causes = {name: finish.stats.max_stall_cause for name, finish in run.finishes.items()}
    waited = {n for n, times in run.times().items() if max(b - a for a, b in pairwise(times)) > 1}
    assert waited
    assert {name for name, cause in causes.items() if cause == "token_budget"} == waited


def test_building_the_batch_is_packing_and_no_scheduling(lab, request_of):
    world = lab(ChunkedPolicy(4, 64))
    table = world.cache.table

    def slow_table(name):
        world.clock.advance(0.5)
        return table(name)

    world.cache.table = slow_table
    rows = world.play([request_of("a", 4, 2), request_of("b", 4, 2)]).rows
    assert [(row.schedule_s, row.pack_s) for row in rows] == [(0.0, 1.0)] * 2
    assert [row.compute_s for row in rows] == [1.0] * 2


def test_a_single_token_of_anothers_prompt_is_prefill_beside_a_decode(lab, request_of):
    """Two positions a step, the second a piece of a prompt that gives no token yet."""
    cost = StepCost(per_step_s=1.0, per_token_s=1.0)
    world = lab(ChunkedPolicy(2, 2), cost=cost)
    run = world.play([request_of("a", 1, 6), request_of("b", 4, 1, scheduled_s=1.0)])
    assert run.finishes["a"].stats.max_stall_cause == "prefill"
    alone = lab(ChunkedPolicy(2, 2), cost=cost).play([request_of("a", 1, 6)])
    assert alone.finishes["a"].stats.max_stall_cause == "compute"
