"""How `generate` engines serve: on a fake model that takes one virtual second a step."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

import pytest

from engines.api import END, GREEDY, Request, RequestSource, StepEvents
from engines.clock import VirtualClock
from engines.generate_batching import BatchRule, Bounds
from engines.generate_serving import BatchFailed, Serving, Setup
from workloads.sources import ClosedLoopSource, QueueSource, ScheduledSource

STEP_S = 1.0
EOS = 99


class FakeModel:
    """Packs and runs batches. `next_token(request, n)` is the n-th token of an answer, from 0."""

    def __init__(self, clock: VirtualClock, next_token: Callable[[Request, int], int]) -> None:
        self.clock = clock
        self.next_token = next_token
        self.batches: list[list[str]] = []
        self.positions: list[int] = []
        self.failing: set[int] = set()

    def pack(self, requests: Sequence[Request]) -> FakeBatch:
        self.batches.append([request.request_id for request in requests])
        return FakeBatch(self, requests)


class FakeBatch:
    def __init__(self, model: FakeModel, requests: Sequence[Request]) -> None:
        self.model = model
        self.requests = requests

    def run(self, max_new_tokens: int, on_tokens: Callable[[list[int]], list[bool]]) -> None:
        width = max(len(request.prompt_token_ids) for request in self.requests)
        for n in range(max_new_tokens):
            if len(self.model.batches) - 1 in self.model.failing:
                raise BatchFailed("no memory")
            self.model.clock.advance(STEP_S)
            self.model.positions.append(len(self.requests) * (width if n == 0 else 1))
            if all(on_tokens([self.model.next_token(r, n) for r in self.requests])):
                return
        raise AssertionError("a row went on past its bound")


class Record:
    """A sink that keeps everything, and calls `on_step` after each step."""

    def __init__(self, on_step: Callable[[int], None] = lambda step: None) -> None:
        self.events: list[StepEvents] = []
        self.on_step = on_step

    def emit(self, events: StepEvents) -> None:
        self.events.append(events)
        if events.step is not None:
            self.on_step(events.step.step)

    @property
    def steps(self):
        return [e.step for e in self.events if e.step is not None]

    @property
    def finishes(self):
        return {f.request_id: f for e in self.events for f in e.finished}

    def outputs(self) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for event in self.events:
            for name, tokens in zip(event.request_ids, event.token_ids, strict=True):
                found.setdefault(name, []).extend(tokens)
        return found

    def token_times(self, name: str) -> list[tuple[float, int]]:
        return [
            (event.time_s, len(tokens))
            for event in self.events
            for found, tokens in zip(event.request_ids, event.token_ids, strict=True)
            if found == name
        ]

    def ends(self) -> dict[str, float]:
        return {f.request_id: e.time_s for e in self.events for f in e.finished}


class Bench:
    """One engine on the fake model."""

    def __init__(
        self,
        rule: BatchRule,
        streams: bool = True,
        kv_tokens: int | None = None,
        whole: bool = False,
    ) -> None:
        self.clock = VirtualClock()
        self.model = FakeModel(self.clock, lambda request, n: n)
        self.stopping = threading.Event()
        bounds = Bounds(64, kv_tokens)
        self.setup = Setup(rule, bounds, self.model, (EOS,), streams, whole, self.stopping)

    def serve(self, source: RequestSource, record: Record | None = None) -> Record:
        record = record or Record()
        Serving(self.setup, source, record, self.clock).serve()
        return record

    def serve_all(self, requests: Sequence[Request]) -> Record:
        return self.serve(ScheduledSource(requests, self.clock))


def request(name: str, prompt: int, max_tokens: int | None, at_s: float = 0.0, **rest) -> Request:
    return Request(name, tuple(range(3, 3 + prompt)), max_tokens, at_s, GREEDY, **rest)


def static(size: int, **settings) -> Bench:
    return Bench(BatchRule(size, None), **settings)


def dynamic(size: int, delay_s: float, **settings) -> Bench:
    return Bench(BatchRule(size, delay_s), **settings)


THREE = [request("a", 3, 2), request("b", 5, 5), request("c", 1, 10)]


@pytest.mark.parametrize("delay_s", [0.0, 5.0])
def test_what_queued_while_the_model_was_busy_goes_out_together_at_once(delay_s):
    bench = dynamic(4, delay_s)
    queued = [request(f"b{i}", 3, 5, delay_s + 1.0 + i / 10) for i in range(3)]
    record = bench.serve_all([request("a", 3, 5), *queued, request("z", 3, 1, 99.0)])
    assert [len(batch) for batch in bench.model.batches] == [1, 3, 1]
    assert record.steps[5].start_s == pytest.approx(record.steps[4].end_s)


def test_a_window_gathers_until_the_oldest_has_waited_long_enough():
    bench = dynamic(4, 0.5)
    arrivals = [1.0, 1.2, 1.5, 1.6]
    record = bench.serve_all([request(f"r{t}", 3, 1, t) for t in arrivals])
    assert bench.model.batches == [["r1.0", "r1.2", "r1.5"], ["r1.6"]]
    assert record.steps[0].start_s == pytest.approx(1.5)


def test_static_waits_for_a_full_batch_and_ends_with_a_partial_one():
    bench = static(2)
    record = bench.serve_all([request(f"r{t}", 3, 1, float(t)) for t in (0, 5, 6)])
    assert bench.model.batches == [["r0", "r5"], ["r6"]]
    assert record.finishes["r0"].stats.queue_s == pytest.approx(5.0)


def test_static_does_not_wait_for_more_than_a_closed_loop_lets_in():
    bench = static(8)
    requests = [request(f"r{i}", 3, 1) for i in range(5)]
    source = ClosedLoopSource(requests, bench.clock, 2)

    class Both(Record):
        def emit(self, events: StepEvents) -> None:
            super().emit(events)
            source.emit(events)

    record = bench.serve(source, Both())
    assert [len(batch) for batch in bench.model.batches] == [2, 2, 1]
    assert {f.status for f in record.finishes.values()} == {"ok"}


def test_each_row_gets_its_own_length_and_the_rest_is_padding():
    bench = static(3)
    record = bench.serve_all([request("a", 3, 2), request("b", 3, 5), request("c", 3, 10)])
    lengths = {name: len(tokens) for name, tokens in record.outputs().items()}
    assert lengths == {"a": 2, "b": 5, "c": 10}
    assert sum(step.padding for step in record.steps) == 8 + 5
    assert {f.finish_reason for f in record.finishes.values()} == {"length"}


def test_streamed_rows_end_at_their_own_last_token():
    record = static(3).serve_all(THREE)
    assert record.ends() == {"a": 2.0, "b": 5.0, "c": 10.0}
    assert record.token_times("a") == [(1.0, 1), (2.0, 1)]


def test_delivery_by_batch_gives_one_event_a_request_at_the_batchs_end():
    record = static(3, streams=False).serve_all(THREE)
    assert record.ends() == {"a": 10.0, "b": 10.0, "c": 10.0}
    assert [record.token_times(name) for name in "abc"] == [[(10.0, 2)], [(10.0, 5)], [(10.0, 10)]]
    assert record.finishes["a"].stats.num_steps == 2


@pytest.mark.parametrize("streams", [True, False])
def test_ledger_adds_up_to_what_was_computed(streams: bool):
    bench = static(2, streams=streams)
    record = bench.serve_all([*THREE, request("d", 7, 4)])
    assert [step.executed for step in record.steps] == bench.model.positions
    assert [step.step for step in record.steps] == list(range(len(bench.model.positions)))
    assert sum(step.prompt for step in record.steps) == 3 + 5 + 1 + 7
    assert sum(step.output for step in record.steps) == 1 + 4 + 9 + 3
    stats = [finish.stats for finish in record.finishes.values()]
    assert sum(s.first_time_prompt for s in stats) == sum(step.prompt for step in record.steps)
    assert sum(s.first_time_output for s in stats) == sum(step.output for step in record.steps)


def test_a_cache_allocated_at_once_reserves_the_batchs_last_size():
    record = static(4, whole=True).serve_all(THREE)
    assert {step.tokens_reserved for step in record.steps} == {3 * (5 + 10 - 1)}


def test_step_rows_describe_the_batch():
    record = static(4).serve_all(THREE)
    prefill, second, third = record.steps[:3]
    assert (prefill.prefill_tokens, prefill.decode_tokens, prefill.padding) == (9, 0, 6)
    assert (prefill.num_running, prefill.useful_rows, prefill.slots) == (3, 3, 4)
    assert (prefill.tokens_held, prefill.tokens_reserved) == (9, 15)
    assert (prefill.lost_to_reservation, prefill.lost_inside_blocks) == (6, None)
    assert (second.prefill_tokens, second.decode_tokens, second.padding) == (0, 3, 0)
    assert (second.tokens_held, second.tokens_reserved) == (12, 18)
    assert (third.useful_rows, third.decode_tokens, third.padding) == (2, 2, 1)
    assert (third.tokens_held, third.tokens_reserved) == (10, 21)
    assert third.lost_to_reservation == 11  # columns to the left, and the row that has ended
    assert (third.start_s, third.end_s, third.compute_s) == (2.0, 3.0, 1.0)


@pytest.mark.parametrize("streams", [True, False])
def test_durations_add_up_to_the_time_from_arrival_to_end(streams: bool):
    bench = dynamic(2, 0.25, streams=streams)
    requests = [request(f"r{i}", 2 + i, 1 + 2 * i, 0.4 * i) for i in range(5)]
    record = bench.serve_all(requests)
    ends = record.ends()
    for asked in requests:
        stats = record.finishes[asked.request_id].stats
        parts = [stats.queue_s, stats.prefill_s, stats.decode_s, stats.preempted_s]
        assert all(part >= 0 for part in parts)
        assert sum(parts) == pytest.approx(ends[asked.request_id] - asked.scheduled_s)
        assert stats.prefill_s == pytest.approx(STEP_S)


def test_those_who_came_during_a_batch_are_seen_waiting():
    record = static(2).serve_all([request(f"r{i}", 3, 4, i / 2) for i in range(5)])
    assert [step.num_waiting for step in record.steps[:4]] == [0, 2, 3, 3]


def test_an_impossible_request_fails_alone():
    bench = static(4)
    bad = request("bad", 60, 10)
    record = bench.serve_all([bad, *THREE, request("late", 3, 3, 30.0)])
    assert record.finishes["bad"].status == "rejected"
    assert "70" in record.finishes["bad"].reason
    assert [record.finishes[name].status for name in ("a", "b", "c", "late")] == ["ok"] * 4


def test_empty_prompts_and_answers_are_refused_while_others_go_on():
    bench = dynamic(4, 0.0)
    odd = [request("none", 0, 3, 1.5), request("zero", 3, 0, 1.5), request("open", 60, None, 1.5)]
    record = bench.serve_all([request("a", 3, 6), request("b", 3, 6), *odd])
    statuses = {name: finish.status for name, finish in record.finishes.items()}
    assert statuses == {"a": "ok", "b": "ok", "none": "rejected", "zero": "rejected", "open": "ok"}
    assert len(record.outputs()["open"]) == 4


@pytest.mark.parametrize(("ignore_eos", "length"), [(True, 6), (False, 3)])
def test_eos_ends_an_answer_unless_ignored(ignore_eos: bool, length: int):
    bench = static(1)
    bench.model.next_token = lambda request, n: EOS if n == 2 else n
    record = bench.serve_all([request("a", 3, 6, ignore_eos=ignore_eos)])
    assert len(record.outputs()["a"]) == length
    assert record.finishes["a"].finish_reason == ("length" if ignore_eos else "stop")


def test_a_stop_token_ends_its_own_row_and_is_delivered():
    bench = static(2)
    record = bench.serve_all([request("a", 3, 6, stop_token_ids=(1, 50)), request("b", 3, 4)])
    assert record.outputs() == {"a": [0, 1], "b": [0, 1, 2, 3]}
    assert record.finishes["a"].finish_reason == "stop"


def test_a_stop_token_in_the_last_place_is_a_stop():
    record = static(1).serve_all([request("a", 3, 2, stop_token_ids=(1,))])
    assert record.finishes["a"].finish_reason == "stop"


def test_memory_shrinks_batches_but_never_below_one():
    bench = static(4, kv_tokens=20)
    record = bench.serve_all([request(f"r{i}", 5, 6) for i in range(5)])  # 10 positions each
    assert [len(batch) for batch in bench.model.batches] == [2, 2, 1]
    assert max(step.tokens_reserved for step in record.steps) == 20
    tight = static(4, kv_tokens=10)
    tight.serve_all([request(f"r{i}", 5, 6) for i in range(2)])
    assert [len(batch) for batch in tight.model.batches] == [1, 1]


def test_a_request_larger_than_the_memory_is_refused():
    bench = static(4, kv_tokens=9)
    record = bench.serve_all([request("a", 5, 6), request("b", 5, 5)])
    assert record.finishes["a"].status == "rejected"
    assert record.finishes["b"].status == "ok"


def test_a_failed_batch_does_not_end_the_run():
    bench = static(2)
    bench.model.failing = {0}
    record = bench.serve_all([request(f"r{i}", 3, 2) for i in range(3)])
    assert [record.finishes[f"r{i}"].status for i in range(3)] == ["failed", "failed", "ok"]
    assert record.finishes["r0"].reason == "no memory"


@pytest.mark.parametrize("streams", [True, False])
def test_an_error_while_running_fails_everybody_left_and_is_raised(streams: bool):
    bench, record = static(2, streams=streams), Record()

    def break_down(asked: Request, n: int) -> int:
        if n == 3:
            raise ValueError("a kernel is missing")
        return n

    bench.model.next_token = break_down
    requests = [request("short", 3, 2), request("long", 3, 9), request("waits", 3, 2)]
    with pytest.raises(ValueError, match="a kernel is missing"):
        bench.serve(ScheduledSource(requests, bench.clock), record)
    left = {name: f for name, f in record.finishes.items() if f.status != "ok"}
    assert list(left) == (["long", "waits"] if streams else ["short", "long", "waits"])
    assert {(f.status, f.reason) for f in left.values()} == {
        ("failed", "the engine stopped with an error: a kernel is missing")
    }
    assert sum(len(e.finished) for e in record.events) == 3


def test_an_error_while_packing_fails_everybody_and_is_raised(monkeypatch: pytest.MonkeyPatch):
    bench, record = static(2), Record()

    def pack(requests: Sequence[Request]) -> FakeBatch:
        raise ValueError("too wide")

    monkeypatch.setattr(bench.model, "pack", pack)
    requests = [request(f"r{i}", 3, 2) for i in range(3)]
    with pytest.raises(ValueError, match="too wide"):
        bench.serve(ScheduledSource(requests, bench.clock), record)
    assert [(name, f.status) for name, f in record.finishes.items()] == [
        (f"r{i}", "failed") for i in range(3)
    ]


@pytest.mark.parametrize("streams", [True, False])
def test_stop_ends_at_the_next_step_and_cancels_what_is_left(streams: bool):
    bench = static(2, streams=streams)
    record = Record(lambda step: bench.stopping.set() if step == 3 else None)
    requests = [request("short", 3, 2), request("long", 3, 20), request("waits", 3, 2)]
    bench.serve(ScheduledSource(requests, bench.clock), record)
    assert len(record.steps) == 4
    statuses = {name: finish.status for name, finish in record.finishes.items()}
    assert statuses == {"short": "ok", "long": "cancelled", "waits": "cancelled"}
    assert record.outputs()["short"] == [0, 1]
    assert len(record.outputs().get("long", [])) == (4 if streams else 0)
    assert record.finishes["waits"].stats.queue_s == pytest.approx(4.0)


def test_stop_is_heard_while_nothing_arrives():
    bench = static(2)

    class Quiet:
        """A source that never has anything; told to stop at the third wait."""

        waits = 0

        def take(self, now_s: float, limit: int) -> list[Request]:
            return []

        def next_due(self) -> float:
            return float("inf")

        def cancelled(self) -> tuple[str, ...]:
            return ()

        def wait(self, until_s: float) -> None:
            assert until_s < bench.clock.now() + 1.0
            self.waits += 1
            if self.waits == 3:
                bench.stopping.set()

    source = Quiet()
    bench.serve(source)
    assert source.waits == 3


@pytest.mark.parametrize("streams", [True, False])
def test_clients_that_leave_are_let_go(streams: bool):
    bench = static(2, streams=streams)
    source = QueueSource(bench.clock)
    for asked in [request("a", 3, 8), request("b", 3, 4), request("c", 3, 2), request("d", 3, 2)]:
        source.submit(asked)
    source.close()

    def leave(step: int) -> None:
        if step == 1:
            source.cancel("a")
            source.cancel("c")

    record = bench.serve(source, Record(leave))
    statuses = {name: finish.status for name, finish in record.finishes.items()}
    assert statuses == {"a": "cancelled", "b": "ok", "c": "cancelled", "d": "ok"}
    assert bench.model.batches == [["a", "b"], ["d"]]
    assert record.ends()["a"] == 2.0
    assert [(s.useful_rows, s.padding) for s in record.steps[:4]] == [
        (2, 0),
        (2, 0),
        (1, 1),
        (1, 1),
    ]
    assert len(record.outputs().get("a", [])) == (2 if streams else 0)
    assert record.finishes["a"].stats.first_time_output == 1


def test_an_answer_held_back_for_a_client_that_left_is_not_delivered():
    bench = static(2, streams=False)
    source = QueueSource(bench.clock)
    for asked in [request("a", 3, 2), request("b", 3, 6)]:
        source.submit(asked)
    source.close()
    record = bench.serve(source, Record(lambda step: step == 3 and source.cancel("a")))
    assert record.finishes["a"].status == "cancelled"
    assert list(record.outputs()) == ["b"]


def test_a_batch_whose_clients_all_left_ends_at_once():
    bench = static(2)
    source = QueueSource(bench.clock)
    for name in "ab":
        source.submit(request(name, 3, 50))
    source.close()
    record = bench.serve(source, Record(lambda step: [source.cancel(n) for n in "ab"]))
    assert len(record.steps) == 1
    assert source.next_due() is END


@pytest.mark.parametrize(
    ("streams", "running"),
    [(True, [3] * 2 + [2] * 3 + [1] * 5), (False, [3] * 10)],
)
def test_who_has_ended_runs_on_until_that_is_told(streams, running):
    """So that Little's law holds: row-seconds of the steps are the requests' time in service."""
    record = static(3, streams=streams).serve_all(THREE)
    assert [step.num_running for step in record.steps] == running
    served = [f.stats.prefill_s + f.stats.decode_s for f in record.finishes.values()]
    assert sum(served) == sum(s.num_running * (s.end_s - s.start_s) for s in record.steps)
