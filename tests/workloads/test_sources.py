"""Sources are driven by small loops that stand for engines; the virtual clock moves their time."""

from __future__ import annotations

import heapq
import itertools
import math
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engines.api import (
    BLOCKED,
    END,
    Clock,
    Finish,
    Request,
    RequestSource,
    Sink,
    Status,
    StepEvents,
)
from engines.clock import VirtualClock, WallClock
from workloads.loads import all_at_once, at_load, at_rate
from workloads.sources import (
    ClosedLoopSource,
    QueueSource,
    ScheduledSource,
    make_source,
    sets_arrivals,
)
from workloads.workload import ModelLimits, Workload, draw, open_workload

MakeRequests = Callable[..., list[Request]]
PATIENCE_S = 10.0


def talks(make_requests: MakeRequests) -> list[Request]:
    requests = make_requests(0.0, 1.0, 2.0, 3.0, 4.0, 5.0)
    names = ["a1", "b1", "a2", "c", "b2", "a3"]
    return [
        replace(r, request_id=name, session=None if name == "c" else name[0])
        for r, name in zip(requests, names, strict=True)
    ]


def serve(
    source: RequestSource,
    clock: VirtualClock,
    service_s: float,
    send_s: float = 0.0,
) -> list[tuple[Request, float, float]]:
    """An engine without a batch limit: each request ends `service_s` after it was taken.

    Taking a batch costs `send_s`. Returns (request, taken, ended), in the order of the ends.
    """
    running: list[tuple[float, int, float, Request]] = []
    served: list[tuple[Request, float, float]] = []
    order = itertools.count()
    while True:
        for request in source.take(clock.now(), 1_000_000):
            clock.advance(send_s)
            taken_s = clock.now()
            heapq.heappush(running, (taken_s + service_s, next(order), taken_s, request))
        due = source.next_due()
        if not running and due is END:
            return served
        next_end_s = running[0][0] if running else math.inf
        if isinstance(due, float) and due <= clock.now():
            continue
        source.wait(next_end_s)
        while running and running[0][0] <= clock.now():
            ended_s, _, taken_s, request = heapq.heappop(running)
            served.append((request, taken_s, ended_s))
            if hasattr(source, "emit"):
                finish = Finish(request.request_id, "ok")
                cast(Sink, source).emit(StepEvents(clock.now(), finished=[finish]))


def in_thread(act: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=act, daemon=True)
    thread.start()
    return thread


class TestScheduled:
    def test_hands_out_what_is_due_once_and_in_order(self, make_requests: MakeRequests) -> None:
        source = ScheduledSource(make_requests(0.2, 0.0, 0.1), VirtualClock())
        assert [r.request_id for r in source.take(0.15, 10)] == ["b", "c"]
        assert source.take(0.15, 10) == []
        assert source.next_due() == 0.2
        assert [r.request_id for r in source.take(0.2, 10)] == ["a"]
        assert source.next_due() is END
        assert source.cancelled() == ()

    def test_requests_of_one_instant_keep_their_order(self, make_requests: MakeRequests) -> None:
        source = ScheduledSource(make_requests(*[1.0] * 5), VirtualClock())
        assert [r.request_id for r in source.take(1.0, 99)] == list("abcde")

    def test_limit_leaves_the_rest_for_later(self, make_requests: MakeRequests) -> None:
        source = ScheduledSource(make_requests(0.0, 0.0, 0.0), VirtualClock())
        assert len(source.take(0.0, 2)) == 2
        assert source.take(0.0, 0) == []
        assert source.next_due() == 0.0
        assert len(source.take(0.0, 2)) == 1

    def test_wait_moves_a_virtual_clock_to_the_next_arrival(
        self, make_requests: MakeRequests
    ) -> None:
        clock = VirtualClock()
        source = ScheduledSource(make_requests(0.0, 2.0), clock)
        source.take(0.0, 1)
        source.wait(1.0)
        assert clock.now() == 1.0
        source.wait(math.inf)
        assert clock.now() == 2.0

    def test_wait_ignores_what_was_due_but_not_taken(self, make_requests: MakeRequests) -> None:
        clock = VirtualClock()
        source = ScheduledSource(make_requests(0.0, 0.0, 9.0), clock)
        source.take(0.0, 1)
        source.wait(5.0)
        assert clock.now() == 5.0

    def test_wait_returns_at_once_for_what_fell_due_since_the_last_take(
        self, make_requests: MakeRequests
    ) -> None:
        clock = VirtualClock()
        source = ScheduledSource(make_requests(1.0), clock)
        assert source.take(0.9, 1) == []
        clock.advance(1.1)
        source.wait(5.0)
        assert clock.now() == 1.1

    def test_waiting_without_end_on_a_virtual_clock_is_an_error(
        self, make_requests: MakeRequests
    ) -> None:
        clock = VirtualClock()
        source = ScheduledSource(make_requests(0.0), clock)
        source.take(0.0, 1)
        with pytest.raises(RuntimeError, match="nothing is due any more"):
            source.wait(math.inf)
        assert clock.now() == 0.0

    def test_wait_on_the_wall_clock_ends_at_the_arrival(self, make_requests: MakeRequests) -> None:
        clock = WallClock()
        source = ScheduledSource(make_requests(0.005), clock)
        assert source.take(0.0, 1) == []
        source.wait(math.inf)
        assert clock.now() >= 0.005
        assert len(source.take(clock.now(), 1)) == 1

    def test_wake_ends_a_wait_on_the_wall_clock(self, make_requests: MakeRequests) -> None:
        source = ScheduledSource(make_requests(1e6), WallClock())
        thread = in_thread(lambda: source.wait(math.inf))
        source.wake()
        thread.join(PATIENCE_S)
        assert not thread.is_alive()

    def test_wake_before_a_take_still_ends_the_next_wait(self, make_requests: MakeRequests) -> None:
        clock = VirtualClock()
        source = ScheduledSource(make_requests(7.0), clock)
        source.wake()
        source.take(0.0, 1)
        source.wait(math.inf)
        assert clock.now() == 0.0
        source.wait(math.inf)
        assert clock.now() == 7.0

    def test_slow_sending_does_not_stretch_the_schedule(self, limits: ModelLimits) -> None:
        config = open_workload("uniform")
        drawn = draw(config, seed=0, limits=limits, num_prompts=1000, burstiness=math.inf)
        clock = VirtualClock()
        source = ScheduledSource(at_load(drawn, at_rate(200.0)), clock)
        served = serve(source, clock, service_s=0.0, send_s=0.0005)
        assert len(served) == 1000
        assert served[-1][1] == pytest.approx(5.0, abs=1 / 200 + 0.001)
        assert max(taken_s - r.scheduled_s for r, taken_s, _ in served) < 0.001

    def test_all_at_once_is_due_at_t0(self, chat_mix: Workload) -> None:
        source = ScheduledSource(at_load(chat_mix, all_at_once()), VirtualClock())
        assert source.next_due() == 0.0
        taken = source.take(0.0, 1000)
        assert [r.request_id for r in taken] == [r.request_id for r in chat_mix.requests]
        assert {r.scheduled_s for r in taken} == {0.0}
        assert source.next_due() is END


class TestClosedLoop:
    def test_finish_of_any_status_frees_one_slot(self, make_requests: MakeRequests) -> None:
        source = ClosedLoopSource(make_requests(*[0.0] * 7), VirtualClock(), 2)
        taken = source.take(0.0, 10)
        assert [r.scheduled_s for r in taken] == [0.0, 0.0]
        statuses: tuple[Status, ...] = ("ok", "rejected", "failed", "timeout", "cancelled")
        for i, status in enumerate(statuses):
            assert source.next_due() is BLOCKED
            assert source.take(math.inf, 10) == []
            now_s = float(i + 1)
            source.emit(StepEvents(now_s, finished=[Finish(taken[-1].request_id, status)]))
            assert source.next_due() == now_s
            taken += source.take(now_s, 10)
            assert taken[-1].scheduled_s == now_s
        assert len(taken) == 7
        assert source.next_due() is END
        assert source.cancelled() == ()

    def test_finish_counts_once_and_only_for_what_was_handed_out(
        self, make_requests: MakeRequests
    ) -> None:
        source = ClosedLoopSource(make_requests(0.0, 0.0, 0.0), VirtualClock(), 1)
        source.take(0.0, 10)
        done = Finish("a", "ok")
        source.emit(StepEvents(1.0, finished=[done, Finish("warmup", "ok"), Finish("c", "ok")]))
        source.emit(StepEvents(1.5, finished=[done]))
        source.emit(StepEvents(1.6, request_ids=["b"], token_ids=[[1]]))
        assert [r.scheduled_s for r in source.take(2.0, 10)] == [1.0]
        assert source.next_due() is BLOCKED

    def test_engine_never_holds_more_than_the_cap(self, chat_mix: Workload) -> None:
        clock = VirtualClock()
        load = all_at_once(4)
        source = make_source(at_load(chat_mix, load), clock, load)
        assert isinstance(source, ClosedLoopSource)
        served = serve(source, clock, service_s=1.0)
        assert [r.request_id for r, _, _ in served] == [r.request_id for r in chat_mix.requests]
        assert [r.scheduled_s for r, _, _ in served] == [float(i // 4) for i in range(32)]
        assert clock.now() == 8.0

    def test_a_cap_beyond_all_memory_is_no_cap(self, make_requests: MakeRequests) -> None:
        source = ClosedLoopSource(make_requests(0.0, 0.0, 0.0), VirtualClock(), 10**12)
        assert len(source.take(0.0, 10)) == 3
        assert source.next_due() is END

    def test_no_request_at_all_is_the_end(self) -> None:
        assert ClosedLoopSource([], VirtualClock(), 4).next_due() is END

    def test_finite_rate_keeps_the_schedule_and_waits_for_a_slot(
        self, make_requests: MakeRequests
    ) -> None:
        clock = VirtualClock()
        source = make_source(make_requests(0.0, 0.1, 0.2, 9.0), clock, at_rate(1.0, 2))
        served = serve(source, clock, service_s=1.0)
        assert [(r.scheduled_s, taken_s) for r, taken_s, _ in served] == [
            (0.0, 0.0),
            (0.1, 0.1),
            (0.2, 1.0),
            (9.0, 9.0),
        ]

    def test_late_request_is_due_when_its_slot_is_freed(self, make_requests: MakeRequests) -> None:
        source = ClosedLoopSource(make_requests(0.0, 0.1), VirtualClock(), 1, keep_schedule=True)
        source.take(0.0, 1)
        source.emit(StepEvents(5.0, finished=[Finish("a", "ok")]))
        assert source.next_due() == 5.0
        assert source.take(4.9, 1) == []
        assert [r.scheduled_s for r in source.take(5.0, 1)] == [0.1]

    def test_a_turn_comes_when_the_one_before_it_has_ended(
        self, make_requests: MakeRequests
    ) -> None:
        """a1 a2 a3 and b1 b2 are sessions, c stands alone; all may begin at t0."""
        source = ClosedLoopSource(talks(make_requests), VirtualClock(), None)
        assert [r.request_id for r in source.take(0.0, 9)] == ["a1", "b1", "c"]
        assert source.next_due() is BLOCKED
        source.emit(StepEvents(2.0, finished=[Finish("c", "ok")]))
        assert source.next_due() is BLOCKED
        source.emit(StepEvents(3.0, finished=[Finish("b1", "failed")]))
        source.emit(StepEvents(5.0, finished=[Finish("a1", "ok")]))
        assert source.next_due() == 3.0
        assert source.take(2.9, 9) == []
        taken = source.take(5.0, 9)
        assert [(r.request_id, r.scheduled_s) for r in taken] == [("b2", 3.0), ("a2", 5.0)]
        assert source.next_due() is BLOCKED
        source.emit(StepEvents(6.0, finished=[Finish("a2", "ok"), Finish("b2", "ok")]))
        assert [(r.request_id, r.scheduled_s) for r in source.take(7.0, 9)] == [("a3", 6.0)]
        assert source.next_due() is END

    def test_a_cap_counts_sessions_and_one_holds_its_slot_to_its_end(
        self, make_requests: MakeRequests
    ) -> None:
        clock = VirtualClock()
        source = make_source(talks(make_requests), clock, all_at_once(1))
        served = serve(source, clock, service_s=1.0)
        assert [(r.request_id, r.scheduled_s) for r, _, _ in served] == [
            (name, float(i)) for i, name in enumerate(["a1", "a2", "a3", "b1", "b2", "c"])
        ]

    def test_all_at_once_is_a_closed_loop_where_there_are_sessions(self, limits: ModelLimits):
        drawn = draw(open_workload("multi-turn"), seed=0, limits=limits)
        clock, load = VirtualClock(), all_at_once()
        assert sets_arrivals(drawn.requests, load)
        served = serve(make_source(at_load(drawn, load), clock, load), clock, service_s=1.0)
        assert len(served) == 40
        turn: dict[str | None, int] = {}
        for request, _, _ in served:
            turn[request.session] = turn.get(request.session, -1) + 1
            assert request.scheduled_s == turn[request.session]
        assert max(turn.values()) >= 3

    @pytest.mark.parametrize("cap", [None, 3])
    def test_at_a_rate_turns_come_as_scheduled(self, limits: ModelLimits, cap: int | None):
        drawn = draw(open_workload("multi-turn"), seed=0, limits=limits)
        clock, load = VirtualClock(), at_rate(2.0, cap)
        assert not sets_arrivals(drawn.requests, load)
        played = at_load(drawn, load)
        served = serve(make_source(played, clock, load), clock, service_s=0.1)
        assert [r for r, _, _ in served] == list(played)

    def test_limit_leaves_the_slot_free(self, make_requests: MakeRequests) -> None:
        source = ClosedLoopSource(make_requests(0.0, 0.0, 0.0), VirtualClock(), 2)
        assert len(source.take(0.0, 1)) == 1
        assert source.next_due() == 0.0
        assert len(source.take(0.0, 5)) == 1

    def test_finish_seen_by_the_next_take_does_not_cut_a_later_wait(
        self, make_requests: MakeRequests
    ) -> None:
        clock = VirtualClock()
        source = ClosedLoopSource(make_requests(0.0, 0.0, 0.0), clock, 1)
        source.take(0.0, 1)
        source.emit(StepEvents(0.0, finished=[Finish("a", "ok")]))
        source.take(0.0, 1)
        source.wait(3.0)
        assert clock.now() == 3.0

    def test_finish_from_another_thread_ends_a_wait(self, make_requests: MakeRequests) -> None:
        source = ClosedLoopSource(make_requests(0.0, 0.0), WallClock(), 1)
        source.take(0.0, 1)
        thread = in_thread(lambda: source.wait(math.inf))
        source.emit(StepEvents(0.0, finished=[Finish("a", "failed", reason="broken")]))
        thread.join(PATIENCE_S)
        assert not thread.is_alive()

    @given(
        st.lists(st.floats(0, 20), min_size=1, max_size=30),
        st.integers(1, 5),
        st.floats(0.01, 3),
        st.booleans(),
    )
    def test_every_request_is_served_once_within_the_cap(
        self, times_s: list[float], cap: int, service_s: float, keep_schedule: bool
    ) -> None:
        requests = [Request(str(i), (1,), 1, scheduled_s=t) for i, t in enumerate(times_s)]
        clock = VirtualClock()
        source = ClosedLoopSource(requests, clock, cap, keep_schedule=keep_schedule)
        served = serve(source, clock, service_s)
        assert sorted(int(r.request_id) for r, _, _ in served) == list(range(len(times_s)))
        assert all(r.scheduled_s <= taken_s for r, taken_s, _ in served)
        for _, taken_s, _ in served:
            assert sum(t <= taken_s < e for _, t, e in served) <= cap


class TestQueue:
    def test_request_is_stamped_at_submission(self, make_requests: MakeRequests) -> None:
        clock = VirtualClock(3.0)
        source = QueueSource(clock)
        (request,) = make_requests(0.0)
        assert source.next_due() == math.inf
        stamped = source.submit(request)
        assert stamped.scheduled_s == 3.0
        assert source.next_due() == 3.0
        assert source.take(2.9, 5) == []
        assert source.take(3.0, 5) == [stamped]

    def test_own_times_are_kept_and_sorted(self, make_requests: MakeRequests) -> None:
        clock = VirtualClock()
        source = QueueSource(clock)
        for request, time_s in zip(make_requests(0, 0, 0), (2.0, 1.0, 1.0), strict=True):
            source.submit(request, time_s)
        source.take(0.0, 9)
        source.wait(math.inf)
        assert clock.now() == 1.0
        assert [r.request_id for r in source.take(clock.now(), 9)] == ["b", "c"]

    def test_closed_queue_ends_when_it_is_empty(self, make_requests: MakeRequests) -> None:
        source = QueueSource(VirtualClock())
        (request,) = make_requests(0.0)
        source.submit(request)
        source.close()
        assert source.next_due() == 0.0
        source.take(0.0, 1)
        assert source.next_due() is END
        with pytest.raises(ValueError, match="after the source was closed"):
            source.submit(request)

    @pytest.mark.parametrize("clock", [WallClock(), VirtualClock()])
    def test_submission_from_another_thread_ends_an_idle_wait(
        self, clock: Clock, make_requests: MakeRequests
    ) -> None:
        source = QueueSource(clock)
        (request,) = make_requests(0.0)
        source.take(clock.now(), 1)
        thread = in_thread(lambda: source.submit(request))
        source.wait(math.inf)
        thread.join(PATIENCE_S)
        assert len(source.take(clock.now(), 1)) == 1

    def test_cancelling_tells_the_engine_once_and_ends_its_wait(
        self, make_requests: MakeRequests
    ) -> None:
        source = QueueSource(WallClock())
        (request,) = make_requests(0.0)
        source.submit(request, 0.0)
        source.take(0.0, 1)
        thread = in_thread(lambda: source.wait(math.inf))
        assert source.cancel("a")
        thread.join(PATIENCE_S)
        assert not thread.is_alive()
        assert source.cancelled() == ("a",)
        assert source.cancelled() == ()

    def test_cancellation_not_yet_seen_survives_a_take(self) -> None:
        clock = VirtualClock()
        source = QueueSource(clock)
        source.cancel("a")
        source.take(0.0, 1)
        source.wait(5.0)
        assert clock.now() == 0.0
        assert source.cancelled() == ("a",)

    def test_request_cancelled_in_the_queue_never_reaches_the_engine(
        self, make_requests: MakeRequests
    ) -> None:
        source = QueueSource(VirtualClock())
        for request in make_requests(0.0, 0.0):
            source.submit(request)
        assert not source.cancel("a")
        assert source.cancelled() == ()
        assert [r.request_id for r in source.take(0.0, 9)] == ["b"]

    def test_close_from_another_thread_ends_a_wait(self) -> None:
        source = QueueSource(WallClock())
        thread = in_thread(lambda: source.wait(math.inf))
        source.close()
        thread.join(PATIENCE_S)
        assert not thread.is_alive()
        assert source.next_due() is END

    def test_many_threads_lose_no_request(self, make_requests: MakeRequests) -> None:
        clock = WallClock()
        source = QueueSource(clock)
        (request,) = make_requests(0.0)

        def feed() -> None:
            for _ in range(200):
                source.submit(request)

        threads = [in_thread(feed) for _ in range(4)]
        taken = 0
        while taken < 800:
            taken += len(source.take(clock.now(), 7))
            if source.next_due() == math.inf and taken < 800:
                source.wait(clock.now() + 1.0)
        for thread in threads:
            thread.join(PATIENCE_S)
        assert source.next_due() == math.inf


def test_load_decides_the_source(make_requests: MakeRequests) -> None:
    clock = VirtualClock()
    assert isinstance(make_source(make_requests(0.0), clock, at_rate(2.0)), ScheduledSource)
    assert isinstance(make_source(make_requests(0.0), clock, all_at_once()), ScheduledSource)
    assert isinstance(make_source(make_requests(0.0), clock, at_rate(2.0, 3)), ClosedLoopSource)


def test_idle_loop_wakes_for_every_arrival_on_the_wall_clock(make_requests: MakeRequests) -> None:
    clock = WallClock()
    source = ScheduledSource(make_requests(0.0, 0.001, 0.002, 0.0021), clock)
    taken: list[Request] = []
    while source.next_due() is not END:
        taken += source.take(clock.now(), 10)
        if isinstance(due := source.next_due(), float):
            source.wait(due)
    assert len(taken) == 4
