"""Properties of every run: random requests, tiny pools, several block sizes, a hashing model.

A watcher stands between the loop and the policy and checks each decision against the rules that
the policy has to keep; the executor's side checks each batch; the recording is checked at the end.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engines.api import END, Request
from engines.loop.executors.cost_model import StepCost
from engines.loop.executors.hashing import HashingExecutor
from engines.loop.kv.contiguous import RESERVES, ContiguousCache
from engines.loop.kv.paged import PagedCache
from engines.loop.policies.admission import (
    WHOLE_PROMPT,
    FullReservation,
    PredictedPeak,
    Watermark,
)
from engines.loop.policies.chunked import ChunkedPolicy
from engines.loop.policies.orca import OrcaPolicy
from engines.loop.policies.orders import (
    FIRST_COME,
    NOTHING_SERVED,
    PRIORITY,
    SHORTEST_JOB,
    SHORTEST_REMAINING,
    Fair,
)
from engines.loop.policies.prefill_first import PrefillFirstPolicy
from engines.loop.policies.rules import Rules
from engines.loop.policies.static import StaticPolicy
from engines.loop.policies.victims import LEAST_PROGRESS, LOWEST_PRIORITY, MOST_BLOCKS, NEWEST
from engines.loop.policies.window import WindowPolicy

BLOCK_SIZES = (1, 2, 3, 4, 5, 7, 16)


@dataclass
class Watcher:
    """Delegates to a policy and checks what it decides, as the loop will see it."""

    policy: object
    mark: dict[str, int] = field(default_factory=dict)
    prompt_len: dict[str, int] = field(default_factory=dict)
    preemptions: int = 0
    unserved: dict[str, int] = field(default_factory=dict)

    @property
    def name(self):
        return self.policy.name

    @property
    def limits(self):
        return self.policy.limits

    def initial_state(self):
        return self.policy.initial_state()

    def plan(self, view, state):
        before = [s.request_id for s in view.running]
        plan, after = self.policy.plan(view, state)
        again, _ = self.policy.plan(view, state)
        assert again == plan, "the policy is not a pure function"
        assert [s.request_id for s in view.running] == before
        if plan.wait_until is None:
            self._check(view, plan)
        return plan, after

    def _check(self, view, plan):
        waiting = list(view.waiting)
        assert [s.arrival_index for s in waiting] == sorted(s.arrival_index for s in waiting)
        for s in [*view.running, *waiting]:
            assert self.prompt_len.setdefault(s.request_id, s.prompt_len) == s.prompt_len
        assert all(s.num_computed == 0 for s in waiting)
        self._check_order(view, plan, waiting)
        comers = len(plan.admit) + len(plan.resume)
        residents = len(view.running) - len(plan.preempt) + comers
        assert residents <= self.limits.max_num_seqs
        assert all(n >= 1 for n in plan.work.values())
        assert not plan.preempt.keys() & plan.work.keys()
        if not view.running and (waiting or view.swapped):
            assert plan.admit or plan.resume, "idle although somebody could run"
        self._check_preemptions(view, plan)
        if isinstance(self.policy, ChunkedPolicy):
            self._check_chunked(view, plan, waiting)

    def _check_order(self, view, plan, waiting):
        """Who comes in is who is first in order; under one that preempts no better one waits."""
        order = order_of(self.policy)
        served = order.look(view, NOTHING_SERVED)
        came = [*plan.resume, *plan.admit]
        if order.name == "fcfs":
            assert not (plan.preempt and came), "a newcomer passes one that was preempted"
            outside = sorted([*waiting, *view.swapped], key=lambda s: s.arrival_index)
            assert set(came) == {s.request_id for s in outside[: len(came)]}, "queue jumped"
            return
        if order.name == "fair":
            return
        rank = {s.request_id: order.rank(s, served) for s in [*waiting, *view.swapped]}
        best = sorted(rank, key=rank.__getitem__)
        assert set(came) == set(best[: len(came)]), "a better one was passed"

    def _check_preemptions(self, view, plan):
        trial = view.trial()
        by_id = {s.request_id: s for s in view.running}
        for name in plan.preempt:
            sequence = by_id[name]
            self.preemptions += 1
            assert sequence.high_water > self.mark.get(name, -1), "preempted without an advance"
            self.mark[name] = sequence.high_water
            free = trial.free_blocks
            trial.release(sequence)
            assert trial.free_blocks > free

    def _check_chunked(self, view, plan, waiting):
        policy = self.policy
        spent = sum(plan.work.values())
        assert spent <= policy.max_num_batched_tokens
        left = policy.max_num_batched_tokens - spent
        stay = [s for s in view.running if s.request_id not in plan.preempt]
        decodes = [s for s in stay if s.num_remaining == 1]
        if policy.max_num_seqs <= policy.max_num_batched_tokens:
            assert all(s.request_id in plan.work for s in decodes), "a decode was left out"
        if not order_of(policy).preempts:
            self._check_turns(view, plan, stay)
        if not policy.enable_chunked_prefill:
            return
        share = policy.long_prefill_token_threshold or math.inf
        if left:
            for s in stay:
                assert plan.work.get(s.request_id) in (s.num_remaining, share)
        if order_of(policy).name != "fcfs" or policy.rules.admission is not WHOLE_PROMPT:
            return
        behind = waiting[len(plan.admit) :]
        slots = policy.max_num_seqs - len(view.running) - len(plan.admit) - len(plan.resume)
        if left and slots > 0 and behind and not plan.preempt and not view.swapped:
            assert not self._would_fit(view, plan, behind[0]), "room was left unused"

    def _check_turns(self, view, plan, stay):
        """Residents beyond the budget take turns; no decode is passed over longer than declared."""
        turns = max(1, self.policy.max_num_batched_tokens - 1)
        decodes = [s.request_id for s in stay if s.num_remaining == 1]
        self.unserved = {
            name: 0 if name in plan.work else self.unserved.get(name, 0) + 1 for name in decodes
        }
        bound = -(-self.policy.max_num_seqs // turns)
        assert max(self.unserved.values(), default=0) <= bound

    def _would_fit(self, view, plan, sequence):
        trial = view.trial()
        by_id = {s.request_id: s for s in [*view.running, *view.waiting]}
        for name, n in plan.work.items():
            if name in plan.admit:
                assert trial.admit(by_id[name], plan.admit[name]) is not None
            assert trial.grow(by_id[name], n)
        return trial.admit(sequence, sequence.num_known) is not None


class CheckedExecutor(HashingExecutor):
    """Checks that every batch is covered by blocks of its own, and counts positions itself."""

    def __init__(self, num_blocks, block_size):
        super().__init__(num_blocks, block_size)
        self.positions = 0

    def submit(self, batch):
        owners = {}
        for row in batch.rows:
            need = -(-(row.start + len(row.tokens)) // self._block_size)
            assert len(row.block_table) >= need, "the row's positions have no block"
            written = row.block_table[row.start // self._block_size : need]
            for block in written:
                assert owners.setdefault(block, row.request_id) == row.request_id
            self.positions += len(row.tokens)
        self.positions += sum(row.num_tokens for row in batch.padding)
        return super().submit(batch)


class LeavingSource:
    """Hands requests out by schedule; clients leave at given times, known to the engine or not."""

    def __init__(self, requests, leaves, clock):
        self._requests = sorted(requests, key=lambda r: r.scheduled_s)
        self._leaves = sorted(leaves.items(), key=lambda item: item[1])
        self._clock = clock

    def take(self, now_s, limit):
        taken = [r for r in self._requests if r.scheduled_s <= now_s]
        self._requests = self._requests[len(taken) :]
        return taken

    def next_due(self):
        return self._requests[0].scheduled_s if self._requests else END

    def cancelled(self):
        now_s = self._clock.now()
        gone = tuple(name for name, at_s in self._leaves if at_s <= now_s)
        self._leaves = [(name, at_s) for name, at_s in self._leaves if at_s > now_s]
        return gone

    def wait(self, until_s):
        due = self.next_due()
        self._clock.sleep_until(min(until_s, due) if due != END else until_s)


def order_of(policy):
    return policy.rules.order if hasattr(policy, "rules") else policy.order


orders = st.sampled_from(
    [FIRST_COME, FIRST_COME, FIRST_COME, PRIORITY, SHORTEST_JOB, SHORTEST_REMAINING, Fair()]
)
rules = st.builds(
    Rules,
    order=orders,
    admission=st.sampled_from(
        [WHOLE_PROMPT, WHOLE_PROMPT, Watermark(0.2), FullReservation(), PredictedPeak()]
    ),
    victim=st.sampled_from([None, None, NEWEST, LOWEST_PRIORITY, LEAST_PROGRESS, MOST_BLOCKS]),
    preemption=st.sampled_from(["recompute", "swap"]),
)
plain_rules = st.builds(Rules, preemption=st.sampled_from(["recompute", "swap"]))
policies = st.one_of(
    st.builds(
        ChunkedPolicy,
        max_num_seqs=st.integers(1, 6),
        max_num_batched_tokens=st.integers(1, 40),
        long_prefill_token_threshold=st.sampled_from([0, 0, 3]),
        rules=plain_rules | rules,
    ),
    st.builds(
        ChunkedPolicy,
        max_num_seqs=st.integers(1, 6),
        max_num_batched_tokens=st.integers(20, 60),
        enable_chunked_prefill=st.just(False),
        rules=plain_rules | rules,
    ),
    st.builds(
        PrefillFirstPolicy,
        max_num_seqs=st.integers(1, 6),
        max_num_batched_tokens=st.integers(20, 60),
        rules=plain_rules | rules,
    ),
    st.builds(OrcaPolicy, max_num_seqs=st.integers(1, 6), order=orders),
    st.builds(StaticPolicy, max_num_seqs=st.integers(1, 5), order=orders),
    st.builds(
        WindowPolicy,
        max_num_seqs=st.integers(1, 5),
        max_delay_s=st.sampled_from([0.0, 0.7, 5.0]),
        order=orders,
    ),
)
shapes = st.lists(
    st.tuples(st.integers(1, 24), st.integers(1, 16), st.sampled_from([0.0, 0.0, 1.0, 3.5, 9.0])),
    min_size=1,
    max_size=10,
)


def requests_from(shapes, *, alike=False):
    """With `alike` all prompts are beginnings of two texts, so that prefixes are shared."""
    return [
        Request(
            f"r{i}",
            tuple(((i % 2 if alike else i) * 7 + j) % 4096 for j in range(prompt)),
            answer,
            arrival,
            priority=(i * 5) % 3,
            request_class="even" if i % 2 else "odd",
        )
        for i, (prompt, answer, arrival) in enumerate(shapes)
    ]


CONTEXT = 40  # of the longest shape: 24 + 16
MEMORIES = ("paged", "prefixes", *RESERVES)


def memory_of(kind, num_blocks, block_size, context):
    """A cache of `kind`: paged, paged with prefix caching, or contiguous with that reserve."""
    if kind in RESERVES:
        return ContiguousCache(num_blocks, block_size, reserve=kind, max_model_len=context)
    return PagedCache(num_blocks, block_size, prefix_caching=kind == "prefixes")


def could_run(request, policy, kind, block_size, num_blocks, context):
    """What the door must decide, from the rules and not from the code."""
    total = len(request.prompt_token_ids) + request.max_tokens
    longest = policy.limits.max_request_len
    positions = total - 1
    if kind == "max":
        positions = context
    elif kind == "pow2":
        power = next(2**i for i in range(10) if 2**i >= positions)
        positions = max(positions, min(power, context))
    fits_memory = -(-positions // block_size) <= num_blocks
    return total <= context and fits_memory and (longest is None or total <= longest)


@settings(max_examples=350, deadline=None)
@given(
    policy=policies,
    shapes=shapes,
    block_size=st.sampled_from(BLOCK_SIZES),
    tokens=st.integers(16, 120),
    memory=st.sampled_from(MEMORIES),
    leaves=st.dictionaries(st.integers(0, 9), st.floats(0, 20), max_size=3),
)
def test_every_run_keeps_the_invariants(
    lab, answer_of, policy, shapes, block_size, tokens, memory, leaves
):
    num_blocks = -(-tokens // block_size)
    context = min(CONTEXT, num_blocks * block_size) if memory == "max" else CONTEXT
    requests = requests_from(shapes, alike=memory == "prefixes")
    watcher = Watcher(policy)
    executor = CheckedExecutor(num_blocks, block_size)
    world = lab(
        watcher,
        cost=StepCost(0.1, 0.01, 0.001),
        executor=executor,
        cache=memory_of(memory, num_blocks, block_size, context),
        max_model_len=context,
    )
    leaves = {f"r{i}": at_s for i, at_s in leaves.items()}
    run = world.run(LeavingSource(requests, leaves, world.clock))
    possible = {
        r.request_id
        for r in requests
        if could_run(r, policy, memory, block_size, num_blocks, context)
    }
    check_outcomes(run, requests, possible, leaves, answer_of)
    check_ledger(run, requests, executor, watcher, num_blocks)
    if memory in RESERVES and not order_of(policy).preempts:
        assert watcher.preemptions == 0, "a region was reserved whole, yet memory ran out"
    assert world.cache.free_blocks == num_blocks
    assert world.cache.tables == {}


def check_outcomes(run, requests, possible, leaves, answer_of):
    assert run.finish_count == len(requests), "a request ended twice or never"
    tokens, times, ends = run.tokens(), run.times(), run.end_s()
    for request in requests:
        name, finish = request.request_id, run.finishes[request.request_id]
        got, whole = tokens.get(name, []), answer_of(request)
        if name not in possible:
            assert (finish.status, got) == ("rejected", [])
            continue
        assert finish.status == "ok" or (finish.status == "cancelled" and name in leaves)
        assert got == (whole if finish.status == "ok" else whole[: len(got)])
        stats = finish.stats
        total = stats.queue_s + stats.prefill_s + stats.decode_s + stats.preempted_s
        assert total == pytest.approx(ends[name] - request.scheduled_s, abs=1e-9)
        if got:
            first_s = times[name][0]
            assert first_s >= request.scheduled_s + stats.queue_s
            assert times[name] == sorted(times[name])


def check_ledger(run, requests, executor, watcher, num_blocks):
    rows = run.rows
    assert [row.step for row in rows] == list(range(len(rows)))
    assert sum(row.executed for row in rows) == executor.positions
    for row in rows:
        assert row.executed == row.prefill_tokens + row.decode_tokens + row.padding
        assert row.executed == row.positions
        assert row.blocks_used + row.blocks_free + row.blocks_cached == num_blocks
        assert row.tokens_held <= row.tokens_reserved
    finishes = run.finishes.values()
    assert sum(row.prompt for row in rows) == sum(f.stats.first_time_prompt for f in finishes)
    assert sum(row.output for row in rows) == sum(f.stats.first_time_output for f in finishes)
    for request in requests:
        finish = run.finishes[request.request_id]
        if finish.status == "ok":
            whole = len(request.prompt_token_ids) + request.max_tokens - 1
            first_time = finish.stats.first_time_prompt + finish.stats.first_time_output
            hits = finish.stats.prefix_hit_tokens + finish.stats.later_hit_tokens
            assert first_time + hits == whole
    assert sum(row.preemptions for row in rows) == watcher.preemptions
    most_steps = sum(
        (len(r.prompt_token_ids) + r.max_tokens - 1)
        * (1 + (run.finishes[r.request_id].stats.num_preemptions or 0))
        for r in requests
    )
    assert len(rows) <= most_steps
    assert sum(f.stats.num_preemptions or 0 for f in finishes) == watcher.preemptions


@settings(max_examples=60, deadline=None)
@given(
    shapes=st.lists(st.tuples(st.integers(1, 12), st.integers(6, 16), st.just(0.0)), min_size=3),
    block_size=st.sampled_from(BLOCK_SIZES),
    budget=st.integers(2, 30),
)
def test_output_does_not_depend_on_memory_or_budget(lab, answer_of, shapes, block_size, budget):
    requests = requests_from(shapes)
    longest = max(len(r.prompt_token_ids) + r.max_tokens for r in requests)
    num_blocks = -(-longest // block_size)  # room for hardly more than one
    run = lab(ChunkedPolicy(8, budget), num_blocks=num_blocks, block_size=block_size).play(requests)
    assert run.tokens() == {r.request_id: answer_of(r) for r in requests}
    allowed = sum(r.max_tokens for r in requests)
    assert sum(row.preemptions for row in run.rows) <= allowed, "more preemptions than progress"


@settings(max_examples=150, deadline=None)
@given(
    shapes=st.lists(
        st.tuples(st.integers(1, 3), st.integers(6, 12), st.sampled_from([0.0, 0.5])),
        min_size=4,
        max_size=7,
    ),
    seqs=st.integers(4, 6),
    budget=st.integers(2, 3),
    block_size=st.sampled_from([1, 2, 3]),
    tokens=st.integers(15, 30),
)
def test_residents_that_take_turns_share_scarce_memory(
    lab, answer_of, shapes, seqs, budget, block_size, tokens
):
    """More residents than budget and too little memory: victims may have work in this step."""
    requests = requests_from(shapes)
    num_blocks = -(-tokens // block_size)
    watcher = Watcher(ChunkedPolicy(seqs, budget))
    executor = CheckedExecutor(num_blocks, block_size)
    world = lab(watcher, num_blocks=num_blocks, block_size=block_size, executor=executor)
    run = world.play(requests)
    assert run.tokens() == {r.request_id: answer_of(r) for r in requests}
    check_ledger(run, requests, executor, watcher, num_blocks)
    assert world.cache.free_blocks == num_blocks
