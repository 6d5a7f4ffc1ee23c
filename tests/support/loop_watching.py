"""What every run of the loop is held to, for the tests that make runs at random.

A watcher stands between the loop and the policy and checks each decision against the rules that
the policy has to keep; the executor checks each batch; the recording is checked at the end.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import pytest
from hypothesis import strategies as st
from loop_idleness import check_nothing_is_idle, order_of

from engines.api import END, Request
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


class SpiedView:
    """The loop's view; it keeps the trial that the policy asked for."""

    def __init__(self, view):
        self._view = view
        self.last_trial = None

    def __getattr__(self, name):
        return getattr(self._view, name)

    def trial(self):
        self.last_trial = self._view.trial()
        return self.last_trial


@dataclass
class Watcher:
    """Delegates to a policy and checks what it decides, as the loop will see it."""

    policy: object
    mark: dict[str, int] = field(default_factory=dict)
    prompt_len: dict[str, int] = field(default_factory=dict)
    preemptions: int = 0
    unserved: dict[str, int] = field(default_factory=dict)
    foretold: int | None = None  # free blocks after the policy's own trial

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
        spied = SpiedView(view)
        plan, after = self.policy.plan(spied, state)
        self.foretold = spied.last_trial.free_blocks if spied.last_trial is not None else None
        again, _ = self.policy.plan(view, state)
        assert again == plan, "the policy is not a pure function"
        assert [s.request_id for s in view.running] == before
        if plan.wait_until is None:
            self.state = state
            served = order_of(self.policy).look(view, served_of(state))
            self._check(view, plan, served)
            self._check_served(plan, view, served, after)
        return plan, after

    def _check(self, view, plan, served):
        waiting = list(view.waiting)
        assert [s.arrival_index for s in waiting] == sorted(s.arrival_index for s in waiting)
        for s in [*view.running, *waiting]:
            assert self.prompt_len.setdefault(s.request_id, s.prompt_len) == s.prompt_len
        assert all(s.num_computed == 0 for s in waiting)
        self._check_order(view, plan, waiting, served)
        comers = len(plan.admit) + len(plan.resume)
        residents = len(view.running) - len(plan.preempt) + comers
        assert residents <= self.limits.max_num_seqs
        assert all(n >= 1 for n in plan.work.values())
        assert not plan.preempt.keys() & plan.work.keys()
        if not view.running and (waiting or view.swapped):
            assert plan.admit or plan.resume, "idle although somebody could run"
        self._check_preemptions(view, plan)
        if isinstance(self.policy, ChunkedPolicy):
            self._check_chunked(view, plan)

    def _check_order(self, view, plan, waiting, served):
        """Who comes in is who is first in order, and nobody is left outside who would fit."""
        order = order_of(self.policy)
        came = {*plan.resume, *plan.admit}
        if not order.preempts:
            assert not (plan.preempt and came), "a newcomer passes one that was preempted"
        best = in_order(order, [*waiting, *view.swapped], served)
        assert came == {s.request_id for s in best[: len(came)]}, "queue jumped"
        check_nothing_is_idle(self.policy, view, plan, best[len(came) :], served)
        if plan.preempt and not came:
            assert self._runs_short(view), "somebody was put out in vain"

    def _runs_short(self, view):
        """Whether memory lacks for what the residents could be given in a step at most."""
        trial = view.trial()
        most = self.limits.max_num_batched_tokens or math.inf
        return not all(trial.grow(s, min(s.num_remaining, most)) for s in view.running)

    def _check_served(self, plan, view, served, after):
        """A fair order counts each group's positions, and forgets groups that are not there."""
        order = order_of(self.policy)
        if order.name != "fair":
            return
        here = [*view.running, *view.swapped, *view.waiting]
        counted = dict(served_of(after).positions)
        for s in here:
            counted[order.group(s)] = counted.get(order.group(s), 0.0)
            counted[order.group(s)] -= plan.work.get(s.request_id, 0)
        before = [served_of(self.state).positions, served.positions]  # looked at or not
        assert any(all(p.get(g, 0.0) == n for g, n in counted.items()) for p in before)
        assert served_of(after).present <= {order.group(s) for s in here}

    def _check_preemptions(self, view, plan):
        trial = view.trial()
        by_id = {s.request_id: s for s in view.running}
        for name in plan.preempt:
            sequence = by_id[name]
            self.preemptions += 1
            assert sequence.high_water > self.mark.get(name, 0), "preempted without an advance"
            self.mark[name] = sequence.high_water
            free = trial.free_blocks
            trial.release(sequence)
            assert trial.free_blocks > free

    def _check_chunked(self, view, plan):
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

    def _check_turns(self, view, plan, stay):
        """Residents beyond the budget take turns; no decode is passed over longer than declared."""
        turns = max(1, self.policy.max_num_batched_tokens - 1)
        decodes = [s.request_id for s in stay if s.num_remaining == 1]
        self.unserved = {
            name: 0 if name in plan.work else self.unserved.get(name, 0) + 1 for name in decodes
        }
        bound = -(-self.policy.max_num_seqs // turns)
        assert max(self.unserved.values(), default=0) <= bound


def served_of(state):
    """What an order remembers, wherever the policy keeps it."""
    return getattr(state, "served", state)


def in_order(order, outside, served):
    """Those outside, the best first; a fair order counts whoever it has named at once."""
    outside = sorted(outside, key=lambda s: s.arrival_index)
    if order.name != "fair":
        return sorted(outside, key=lambda s: order.rank(s, served))
    counted, best = dict(served.positions), []
    while outside:
        firsts = {order.group(s): s for s in reversed(outside)}
        name = min(firsts, key=lambda g: (counted.get(g, 0.0), firsts[g].arrival_index))
        best.append(firsts[name])
        outside.remove(firsts[name])
        counted[name] = counted.get(name, 0.0) + firsts[name].num_known
    return best


class CheckedExecutor(HashingExecutor):
    """Checks that every batch is covered by blocks of its own, and counts positions itself.

    With a `watcher` and its `cache`: what was committed leaves as much free as the policy's trial.
    """

    def __init__(self, num_blocks, block_size, watcher=None, cache=None):
        super().__init__(num_blocks, block_size)
        self.positions = 0
        self.block_size = block_size
        self._watcher = watcher
        self._cache = cache

    def submit(self, batch):
        if self._watcher is not None and self._watcher.foretold is not None:
            assert self._cache.free_blocks == self._watcher.foretold, "trial and commit differ"
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


RARER_ORDERS = (PRIORITY, SHORTEST_JOB, SHORTEST_REMAINING, Fair(), Fair("client"))
orders = st.sampled_from([FIRST_COME, FIRST_COME, FIRST_COME, *RARER_ORDERS])
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
DRAWN = {  # by name; every built-in policy is here
    "chunked": st.one_of(
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
    ),
    "prefill-first": st.builds(
        PrefillFirstPolicy,
        max_num_seqs=st.integers(1, 6),
        max_num_batched_tokens=st.integers(20, 60),
        rules=plain_rules | rules,
    ),
    "orca": st.builds(OrcaPolicy, max_num_seqs=st.integers(1, 6), order=orders),
    "static": st.builds(StaticPolicy, max_num_seqs=st.integers(1, 5), order=orders),
    "window": st.builds(
        WindowPolicy,
        max_num_seqs=st.integers(1, 5),
        max_delay_s=st.sampled_from([0.0, 0.7, 5.0]),
        order=orders,
    ),
}
policies = st.one_of(DRAWN["chunked"], *DRAWN.values())  # the one with most to it more often
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
            session=f"s{i % 3}",
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
    rows, block_size = run.rows, executor.block_size
    assert [row.step for row in rows] == list(range(len(rows)))
    assert sum(row.executed for row in rows) == executor.positions
    for row in rows:
        assert row.executed == row.prefill_tokens + row.decode_tokens + row.padding
        assert row.executed == row.positions
        assert row.blocks_used + row.blocks_free + row.blocks_cached == num_blocks
        lost = row.lost_inside_blocks + row.lost_to_reservation
        assert row.tokens_held + lost == row.tokens_reserved
        assert min(row.lost_inside_blocks, row.lost_to_reservation, row.tokens_held) >= 0
        assert row.lost_inside_blocks <= (block_size - 1) * row.num_running
        assert 0 <= row.lost_to_fragmentation <= row.blocks_free * block_size
        if not row.num_waiting:
            assert row.lost_to_fragmentation == 0
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
