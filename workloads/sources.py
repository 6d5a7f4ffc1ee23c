"""Who hands the requests out: by schedule, in a closed loop, or from another thread.

Each source implements `engines.api.RequestSource`. None of them knows an engine, and none records
anything. All are safe to use from several threads.
"""

from __future__ import annotations

import heapq
import math
from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import replace

from engines.api import (
    BLOCKED,
    END,
    Clock,
    Due,
    Request,
    RequestId,
    RequestSource,
    StepEvents,
)
from workloads.loads import Load
from workloads.waiting import Waiter

_Chain = deque[Request]  # those that come one after another


class ScheduledSource:
    """Hands out requests as they fall due, whatever the engine does (an open loop)."""

    def __init__(self, requests: Sequence[Request], clock: Clock) -> None:
        self._requests = sorted(requests, key=lambda request: request.scheduled_s)
        self._times = [request.scheduled_s for request in self._requests]
        self._next = 0
        self._taken_at_s = -math.inf
        self._waiter = Waiter(clock)

    def take(self, now_s: float, limit: int) -> list[Request]:
        with self._waiter.lock:
            self._taken_at_s = now_s
            due = bisect_right(self._times, now_s, lo=self._next)
            start, self._next = self._next, min(due, self._next + max(limit, 0))
            return self._requests[start : self._next]

    def next_due(self) -> Due:
        with self._waiter.lock:
            return self._times[self._next] if self._next < len(self._times) else END

    def cancelled(self) -> tuple[RequestId, ...]:
        return ()

    def wait(self, until_s: float) -> None:
        """Sleeps until `until_s`, the next arrival since the last `take`, or `wake()`."""
        with self._waiter.lock:
            arrival = bisect_right(self._times, self._taken_at_s, lo=self._next)
            if arrival < len(self._times):
                until_s = min(until_s, self._times[arrival])
        self._waiter.wait_until(until_s)

    def wake(self) -> None:
        """From another thread: ends the present wait, or the next one."""
        self._waiter.wake()


class ClosedLoopSource:
    """At most `max_concurrency` requests at once: a finish of any status frees the next one.

    A session holds its slot to its end: a turn comes when the one before it has finished, so the
    cap counts sessions. `None` is no cap: then all sessions begin at t0.

    Also a `Sink`, which must see every batch of events before the next `take`. A request's
    `scheduled_s` becomes the instant at which its slot was freed, unless `keep_schedule`: then
    it stays the schedule's, turns too, so that the wait for a slot counts as latency.
    """

    def __init__(
        self,
        requests: Sequence[Request],
        clock: Clock,
        max_concurrency: int | None,
        *,
        keep_schedule: bool = False,
    ) -> None:
        ordered = sorted(requests, key=lambda request: request.scheduled_s)
        self._waiting = deque(_chains(ordered, split=keep_schedule))
        most = len(self._waiting)
        slots = max(1, min(max_concurrency or most, most))  # a cap may be out of all proportion
        self._free: deque[tuple[float, _Chain]] = deque([(0.0, deque())] * slots)
        self._in_flight: dict[RequestId, _Chain] = {}
        self._left = len(ordered)
        self._keep_schedule = keep_schedule
        self._taken_at_s = -math.inf
        self._waiter = Waiter(clock)

    def take(self, now_s: float, limit: int) -> list[Request]:
        taken: list[Request] = []
        with self._waiter.lock:
            self._taken_at_s = now_s
            self._waiter.seen()
            while len(taken) < limit and (due := self._next()) is not None:
                if due[0] > now_s:
                    break
                taken.append(self._hand_out(*due))
        return taken

    def next_due(self) -> Due:
        with self._waiter.lock:
            if not self._left:
                return END
            due = self._next()
            return BLOCKED if due is None else due[0]

    def cancelled(self) -> tuple[RequestId, ...]:
        return ()

    def wait(self, until_s: float) -> None:
        """Sleeps until `until_s`, the next arrival since the last `take`, a finish or `wake()`."""
        with self._waiter.lock:
            due = self._next()
            if due is not None and due[0] > self._taken_at_s:
                until_s = min(until_s, due[0])
        self._waiter.wait_until(until_s)

    def emit(self, events: StepEvents) -> None:
        with self._waiter.lock:
            ended = [f for f in events.finished if f.request_id in self._in_flight]
            for finish in ended:
                rest = self._in_flight.pop(finish.request_id)
                self._free.append((events.time_s, rest))
        if ended:
            self._waiter.tell()

    def wake(self) -> None:
        """From another thread: ends the present wait, or the next one."""
        self._waiter.wake()

    def _next(self) -> tuple[float, int] | None:
        """When the next request is due, and which slot it takes; `None` while there is none.

        Slots are in the order in which they were freed. One whose session has ended takes the
        next session, as long as there are any.
        """
        for slot, (freed_s, rest) in enumerate(self._free):
            if rest:
                return freed_s, slot
            if self._waiting:
                scheduled_s = self._waiting[0][0].scheduled_s if self._keep_schedule else 0.0
                return max(scheduled_s, freed_s), slot
        return None

    def _hand_out(self, due_s: float, slot: int) -> Request:
        _, rest = self._free[slot]
        del self._free[slot]
        chain = rest or self._waiting.popleft()
        request = chain.popleft()
        self._in_flight[request.request_id] = chain
        self._left -= 1
        return request if self._keep_schedule else replace(request, scheduled_s=due_s)


class QueueSource:
    """Fed from other threads while it runs (a server). Open until `close()`."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._heap: list[tuple[float, int, Request]] = []
        self._queued: set[RequestId] = set()
        self._cancelled: list[RequestId] = []
        self._submitted = 0
        self._closed = False
        self._taken_at_s = -math.inf
        self._waiter = Waiter(clock, fed_by_threads=True)

    def submit(self, request: Request, scheduled_s: float | None = None) -> Request:
        """Queues the request, stamped with `scheduled_s` or the clock's now, and returns it so.

        Raises `ValueError` after `close()`.
        """
        with self._waiter.lock:
            if self._closed:
                raise ValueError(f"request {request.request_id!r} came after the source was closed")
            arrival_s = self._clock.now() if scheduled_s is None else scheduled_s
            stamped = replace(request, scheduled_s=arrival_s)
            heapq.heappush(self._heap, (arrival_s, self._submitted, stamped))
            self._submitted += 1
            self._queued.add(request.request_id)
        self._waiter.tell()
        return stamped

    def cancel(self, request_id: RequestId) -> bool:
        """Whether the engine has been told, and so will report the request's end.

        `False`: the request was still in the queue and is dropped; no engine will ever see it.
        """
        with self._waiter.lock:
            if request_id in self._queued:
                self._queued.discard(request_id)
                self._heap = [entry for entry in self._heap if entry[2].request_id != request_id]
                heapq.heapify(self._heap)
                told = False
            else:
                self._cancelled.append(request_id)
                told = True
        self._waiter.tell()
        return told

    def close(self) -> None:
        """Nothing will be submitted any more; what is queued is still handed out."""
        with self._waiter.lock:
            self._closed = True
        self._waiter.tell()

    def take(self, now_s: float, limit: int) -> list[Request]:
        taken: list[Request] = []
        with self._waiter.lock:
            self._taken_at_s = now_s
            if not self._cancelled:
                self._waiter.seen()
            while len(taken) < limit and self._heap and self._heap[0][0] <= now_s:
                request = heapq.heappop(self._heap)[2]
                self._queued.discard(request.request_id)
                taken.append(request)
        return taken

    def next_due(self) -> Due:
        """`inf` while the queue is empty but open: something may come at any time."""
        with self._waiter.lock:
            if self._heap:
                return self._heap[0][0]
            return END if self._closed else math.inf

    def cancelled(self) -> tuple[RequestId, ...]:
        with self._waiter.lock:
            gone, self._cancelled = tuple(self._cancelled), []
        return gone

    def wait(self, until_s: float) -> None:
        """Sleeps until `until_s`, or less on `submit`, `cancel`, `close` or `wake`."""
        with self._waiter.lock:
            later = [entry[0] for entry in self._heap if entry[0] > self._taken_at_s]
        until_s = min([until_s, *later])
        self._waiter.wait_until(until_s)

    def wake(self) -> None:
        """From another thread: ends the present wait, or the next one."""
        self._waiter.wake()


def sets_arrivals(requests: Sequence[Request], load: Load) -> bool:
    """Whether a request arrives when another ends, as no schedule can tell: a closed loop."""
    has_sessions = any(request.session is not None for request in requests)
    return load.request_rate == math.inf and (load.max_concurrency is not None or has_sessions)


def make_source(requests: Sequence[Request], clock: Clock, load: Load) -> RequestSource:
    """The source that plays `load`. One that is also a `Sink` must be given the events too."""
    is_closed = sets_arrivals(requests, load)
    if load.max_concurrency is None and not is_closed:
        return ScheduledSource(requests, clock)
    return ClosedLoopSource(requests, clock, load.max_concurrency, keep_schedule=not is_closed)


def _chains(requests: Iterable[Request], *, split: bool) -> list[_Chain]:
    """Requests that follow each other: the turns of a session, others alone; all if `split`."""
    chains: dict[object, _Chain] = {}
    for index, request in enumerate(requests):
        alone = split or request.session is None
        chains.setdefault(index if alone else request.session, deque()).append(request)
    return list(chains.values())
