"""The contracts carry what comes later: each test is a small policy or source made up for it."""

from __future__ import annotations

import math
import threading
from dataclasses import dataclass

import pytest

from engines.api import END
from engines.clock import WallClock
from engines.loop.executors.api import PaddingRow, StepResult
from engines.loop.executors.hashing import HashingExecutor, hash_token
from engines.loop.kv.contiguous import RESERVES, ContiguousCache
from engines.loop.plan import Limits, Plan
from engines.loop.policies.chunked import ChunkedPolicy
from workloads.sources import QueueSource


class Stateless:
    """What the policies here share: a name, no budget, no memory of their own."""

    name = "made-up"
    limits = Limits(max_num_seqs=8)

    def initial_state(self):
        return None


class PadEveryStep(Stateless):
    """Admits all at once and computes two rows for nobody beside every step."""

    def plan(self, view, state):
        trial = view.trial()
        admit = {}
        for sequence in view.waiting:
            assert trial.admit(sequence, sequence.max_len) == 0
            admit[sequence.request_id] = sequence.max_len
        work = {s.request_id: s.num_remaining for s in [*view.running, *view.waiting]}
        return Plan(admit=admit, work=work, padding=[PaddingRow(1, 4), PaddingRow(2, 0)]), None


def test_padding_rows_are_charged_and_change_nothing(lab, request_of, answer_of):
    requests = [request_of("a", 5, 4), request_of("b", 3, 6)]
    run = lab(PadEveryStep()).play(requests)
    assert run.tokens() == {r.request_id: answer_of(r) for r in requests}
    assert [row.padding for row in run.rows] == [3] * 6
    assert sum(row.executed for row in run.rows) == (5 + 3) + (3 + 5) + 18


@dataclass(frozen=True)
class RestEverySecondPlan(Stateless):
    """Waits half a second after every step, from its immutable state."""

    def initial_state(self):
        return False

    def plan(self, view, state):
        if state:
            return Plan(wait_until=view.now_s + 0.5), False
        admit = {s.request_id: 0 for s in view.waiting}
        trial = view.trial()
        for sequence in view.waiting:
            trial.admit(sequence)
        work = {s.request_id: s.num_remaining for s in [*view.running, *view.waiting]}
        return Plan(admit=admit, work=work), True


def test_wait_until_passes_time_and_makes_no_step(lab, request_of, answer_of):
    request = request_of("a", 5, 3)
    run = lab(RestEverySecondPlan()).play([request])
    assert run.tokens()["a"] == answer_of(request)
    assert [row.start_s for row in run.rows] == [0.0, 1.5, 3.0]


class SwapTheOldest(Stateless):
    """After each step the older of two goes to the host and the other comes back."""

    def plan(self, view, state):
        trial = view.trial()
        running, swapped = list(view.running), list(view.swapped)
        if len(running) == 2:
            victim, other = running
            trial.release(victim)
            return Plan(preempt={victim.request_id: "swap"}, work={other.request_id: 1}), None
        if swapped and running and running[0].has_advanced and swapped[0].has_advanced is False:
            back, victim = swapped[0], running[0]
            if victim.num_preemptions == 0:
                return Plan(
                    preempt={victim.request_id: "swap"},
                    resume={back.request_id: 0},
                    work={back.request_id: back.num_remaining},
                ), None
        if swapped and not running:
            return Plan(resume={swapped[0].request_id: 0}, work={swapped[0].request_id: 1}), None
        if running:
            return Plan(work={s.request_id: s.num_remaining for s in running}), None
        admit = {s.request_id: 0 for s in view.waiting}
        return Plan(admit=admit, work={s.request_id: s.num_known for s in view.waiting}), None


class CountingCopies(HashingExecutor):
    """Counts by request the positions that it copies out and in."""

    def __init__(self, num_blocks, block_size):
        super().__init__(num_blocks, block_size)
        self.copied = {}

    def submit(self, batch):
        for copy in (*batch.swap_out, *batch.swap_in):
            before = self.copied.get(copy.request_id, 0)
            self.copied[copy.request_id] = before + copy.num_tokens
        return super().submit(batch)


@pytest.mark.parametrize("reserve", [None, *RESERVES])
def test_swapped_requests_come_back_with_what_they_had(lab, request_of, answer_of, reserve):
    requests = [request_of("a", 5, 6), request_of("b", 7, 6)]
    regions = reserve and ContiguousCache(20, 3, reserve=reserve, max_model_len=30)
    executor = CountingCopies(20, 3)
    world = lab(SwapTheOldest(), num_blocks=20, block_size=3, cache=regions, executor=executor)
    run = world.play(requests)
    assert run.tokens() == {r.request_id: answer_of(r) for r in requests}
    assert {f.stats.num_preemptions for f in run.finishes.values()} == {1}
    assert sum(row.recomputed for row in run.rows) == 0
    assert run.finishes["a"].stats.preempted_s > 0
    assert executor.copied == {n: f.stats.swapped_tokens for n, f in run.finishes.items()}
    assert world.cache.free_blocks == 20


def test_the_host_copy_of_a_swapped_request_that_leaves_is_forgotten_at_once(lab, request_of):
    requests = [request_of("a", 5, 6), request_of("b", 7, 6)]
    executor = HashingExecutor(20, 3)
    world = lab(SwapTheOldest(), num_blocks=20, block_size=3, executor=executor)
    world.run(Scripted(requests, world.clock, "a", at_s=2.0))
    assert world.sink.finishes["a"].status == "cancelled"
    assert world.sink.finishes["a"].stats.num_preemptions == 1
    assert executor._host == {}


class AdmitTwo(Stateless):
    """Runs one request alone; then admits two at once, the evicting one first or last."""

    def __init__(self, order):
        self._order = order
        self.seen = []

    def plan(self, view, state):
        if view.running:
            return Plan(work={s.request_id: s.num_remaining for s in view.running}), None
        waiting = sorted(view.waiting, key=lambda s: self._order.index(s.request_id))
        trial = view.trial()
        admit, work = {}, {}
        for sequence in waiting:
            hit = trial.admit(sequence, sequence.max_len)
            self.seen.append((sequence.request_id, hit))
            if hit is not None:
                admit[sequence.request_id] = sequence.max_len
                work[sequence.request_id] = sequence.num_known - hit
        return Plan(admit=admit, work=work), None


@pytest.mark.parametrize(
    ("order", "hits"),
    [(["hit", "evict"], [8, None, 0]), (["evict", "hit"], [0, None, 4])],
)
def test_an_admission_that_evicts_a_prefix_is_seen_by_the_next(
    lab, request_of, answer_of, order, hits
):
    """Six blocks of four: after `first` two are cached; `evict` takes five, one of them cached."""
    shared = list(range(8))
    first = request_of("first", shared, 1)
    hit = request_of("hit", [*shared, 9], 3, scheduled_s=0.5)
    evict = request_of("evict", 15, 4, scheduled_s=0.5)
    policy = AdmitTwo(["first", *order])
    world = lab(policy, num_blocks=6, block_size=4, prefix_caching=True)
    run = world.play([first, hit, evict])
    answers = {r.request_id: answer_of(r) for r in (first, hit, evict)}
    assert run.tokens() == answers
    assert [hit for name, hit in policy.seen if name != "first"] == hits
    assert run.finishes["hit"].stats.prefix_hit_tokens == max(hits[0], hits[2])


class GuessingExecutor(HashingExecutor):
    """Drafts as many tokens as allowed; every second draft is wrong. Checks them for real."""

    def submit(self, batch):
        tokens, accepted, drafted = [], [], []
        for row in batch.rows:
            given = super()._compute(row)
            kept = 0
            for offset in range(row.lookahead):
                is_right = offset % 2 == 0
                guess = given[-1] if is_right else (given[-1] + 1) % 4096
                position = row.start + len(row.tokens) + offset
                self._slots[self._slot(row.block_table, position)] = guess
                if not is_right:
                    break
                context = [self._slots[self._slot(row.block_table, p)] for p in range(position + 1)]
                given.append(hash_token(context, 4096))
                kept += 1
            tokens.append(given)
            accepted.append(kept)
            drafted.append(row.lookahead)
        result = StepResult(tokens=tokens, accepted=accepted, drafted=drafted)
        return type("Done", (), {"result": lambda _: result})()


class LookAhead(Stateless):
    """Prompts whole, then three drafts behind every decode."""

    def plan(self, view, state):
        trial = view.trial()
        admit = {s.request_id: 0 for s in view.waiting if trial.admit(s) is not None}
        work = {s.request_id: s.num_remaining for s in [*view.running, *view.waiting]}
        lookahead = {s.request_id: 3 for s in view.running}
        return Plan(admit=admit, work=work, lookahead=lookahead), None


def test_rejected_drafts_are_rolled_back_and_charged(lab, request_of, answer_of):
    requests = [request_of("a", 5, 8), request_of("b", 3, 7)]
    executor = GuessingExecutor(50, 2)
    world = lab(LookAhead(), num_blocks=50, block_size=2, executor=executor)
    run = world.play(requests)
    assert run.tokens() == {r.request_id: answer_of(r) for r in requests}
    # the prompt gives one token, then each decode gives two and rejects two of three drafts
    decodes = {"a": 4, "b": 3}
    assert sum(row.rejected_draft for row in run.rows) == 2 * sum(decodes.values())
    # a ends in the middle of its last pair: one accepted draft lies past the stop
    assert sum(row.past_stop for row in run.rows) == 1
    assert sum(row.prompt + row.output for row in run.rows) == (5 + 8 - 1) + (3 + 7 - 1)
    assert world.cache.free_blocks == 50


@pytest.mark.parametrize(
    ("stops_at", "kept", "reason"), [(6, 7, "stop"), (7, 8, "stop"), (8, 8, "length")]
)
def test_a_stop_among_drafts_beyond_the_last_token_asked_for_is_not_seen(
    lab, request_of, answer_of, stops_at, kept, reason
):
    """The last step gives tokens 7 and 8 of an answer of 8 tokens, counted from 0."""
    longer = answer_of(request_of("a", 5, 9))
    request = request_of("a", 5, 8, stop_token_ids=(longer[stops_at],))
    assert longer.index(longer[stops_at]) == stops_at
    executor = GuessingExecutor(50, 2)
    run = lab(LookAhead(), num_blocks=50, block_size=2, executor=executor).play([request])
    assert run.tokens()["a"] == longer[:kept]
    assert run.finishes["a"].finish_reason == reason


def test_closed_loop_source_sees_completions_before_the_next_take(lab, request_of):
    requests = [request_of(f"r{i}", 4, 3) for i in range(6)]
    run = lab(ChunkedPolicy(8, 64)).play_closed(requests, concurrency=2)
    assert max(row.num_running for row in run.rows) == 2
    assert sorted(run.end_s().values()) == [3, 3, 6, 6, 9, 9]


class Scripted:
    """A source that hands all out at once and cancels one request at a given time."""

    def __init__(self, requests, clock, name, at_s):
        self._requests, self._clock = list(requests), clock
        self._name, self._at_s = name, at_s

    def take(self, now_s, limit):
        taken, self._requests = self._requests, []
        return taken

    def next_due(self):
        return 0.0 if self._requests else END

    def cancelled(self):
        if self._clock.now() < self._at_s:
            return ()
        self._at_s = math.inf
        return (self._name, "nobody")

    def wait(self, until_s):
        self._clock.sleep_until(until_s)


@pytest.mark.parametrize("name", ["running", "waiting"])
def test_a_cancelled_request_gives_its_memory_back_at_a_step_boundary(
    lab, request_of, answer_of, name
):
    requests = [
        request_of("running", 8, 50),
        request_of("other", 4, 9),
        request_of("waiting", 4, 9),
    ]
    world = lab(ChunkedPolicy(2, 64), num_blocks=40, block_size=4)
    run = world.run(Scripted(requests, world.clock, name, at_s=4.0))
    finish = run.finishes[name]
    assert finish.status == "cancelled"
    assert run.end_s()[name] == 4.0
    assert run.tokens()["other"] == answer_of(requests[1])
    if name == "running":
        assert run.tokens()[name] == answer_of(requests[0])[:4]
        assert (finish.stats.first_time_prompt, finish.stats.first_time_output) == (8, 3)
    assert world.cache.free_blocks == 40
    assert run.finish_count == 3


def test_a_source_fed_from_another_thread_wakes_an_idle_loop(lab, request_of, answer_of):
    world = lab(ChunkedPolicy(4, 64))
    clock = WallClock()
    source = QueueSource(clock)
    requests = [request_of(f"r{i}", 4, 3) for i in range(3)]
    first_is_done = threading.Event()
    inner = world.sink.emit

    def emit(events):
        inner(events)
        if events.finished:
            first_is_done.set()

    world.sink.emit = emit
    thread = threading.Thread(target=world.loop.run, args=(source, world.sink, clock))
    thread.start()
    source.submit(requests[0])
    assert first_is_done.wait(5)
    for request in requests[1:]:
        source.submit(request)
    source.close()
    thread.join(5)
    assert not thread.is_alive()
    assert world.sink.tokens() == {r.request_id: answer_of(r) for r in requests}
