"""A source that is fed by whoever dispatches: a certification, or another process.

Requests are handed out at their own scheduled instants. Open until `finish`.
"""

from __future__ import annotations

import heapq
import math
import threading
from collections.abc import Iterable

from engines.api import END, Clock, Due, Request, RequestId


class FedSource:
    """Safe to use from several threads."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._due: list[tuple[float, int, Request]] = []
        self._fed = 0
        self._gone: list[RequestId] = []
        self._finished = False
        self._changed = threading.Condition()

    def feed(self, requests: Iterable[Request]) -> None:
        with self._changed:
            for request in requests:
                heapq.heappush(self._due, (request.scheduled_s, self._fed, request))
                self._fed += 1
            self._changed.notify_all()

    def cancel(self, request_ids: Iterable[RequestId]) -> None:
        with self._changed:
            self._gone.extend(request_ids)
            self._changed.notify_all()

    def finish(self) -> None:
        """Nothing will be fed any more."""
        with self._changed:
            self._finished = True
            self._changed.notify_all()

    def take(self, now_s: float, limit: int) -> list[Request]:
        taken: list[Request] = []
        with self._changed:
            while self._due and len(taken) < limit and self._due[0][0] <= now_s:
                taken.append(heapq.heappop(self._due)[2])
        return taken

    def next_due(self) -> Due:
        with self._changed:
            if self._due:
                return self._due[0][0]
            return END if self._finished else math.inf

    def cancelled(self) -> tuple[RequestId, ...]:
        with self._changed:
            gone, self._gone = tuple(self._gone), []
        return gone

    def wait(self, until_s: float) -> None:
        """Until then, or until something is fed, cancelled or finished."""
        with self._changed:
            known = self._fed, self._finished, len(self._gone)
            while known == (self._fed, self._finished, len(self._gone)):
                left_s = until_s - self._clock.now()
                if left_s <= 0:
                    return
                self._changed.wait(min(left_s, 3600.0))
