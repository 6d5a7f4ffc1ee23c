"""One worker's requests, each played once by whichever user is free, and their rows until sent.

A user asks for its next request, waits until it is due and plays it; how many users there are is
the cap on concurrency. Knows neither the other workers nor the records, and no HTTP.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Protocol, TypeVar

from engines.api import Request
from harness.locust_load.exchange import RUN_ENDED, Answer

CONNECT_AHEAD_S: Final = 0.05
USER_STOPPED: Final = "its locust user was stopped"
_ABORTED_WITHIN_S: Final = 2.0
_TIMER_STEP_S: Final = 0.0011  # gevent's timers wake in whole milliseconds, and late
T = TypeVar("T")


class CallLike(Protocol):
    """A request that is ready to be sent."""

    def run(self) -> Answer: ...

    def abort(self) -> None: ...

    def cancelled(self, reason: str) -> Answer: ...

    def release(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Row:
    """A request that has ended. `waited_s`: for how long it was due and no user was free."""

    index: int
    scheduled_s: float
    waited_s: float
    answer: Answer


@dataclass(frozen=True, slots=True)
class News:
    """What has happened since the last news: requests handed out, and requests that ended."""

    arrivals: tuple[tuple[int, float], ...] = ()
    rows: tuple[Row, ...] = ()


@dataclass(slots=True)
class Seat:
    """What a user holds: since when it is free, and the rest of the session that it plays."""

    freed_s: float = 0.0
    rest: deque[int] = field(default_factory=deque)


@dataclass(slots=True)
class _Flight:
    request: Request
    waited_s: float
    call: CallLike | None = None
    is_sent: bool = False


class Player:
    """`chains` are this worker's requests in the order in which they begin, each one after another.

    `clock` counts from the run's t0 and may be negative before it. `prepare` may block;
    `tell` hears of every row at once, in the user's own thread.
    """

    def __init__(
        self,
        requests: Sequence[Request],
        chains: Sequence[Sequence[int]],
        *,
        closed_loop: bool,
        clock: Callable[[], float],
        prepare: Callable[[Request], CallLike],
        tell: Callable[[Request, Row], None] = lambda request, row: None,
    ) -> None:
        self._requests = requests
        self._waiting = deque(map(deque[int], chains))
        self._left = sum(map(len, chains))
        self._closed_loop = closed_loop
        self._clock = clock
        self._prepare = prepare
        self._tell = tell
        self._flights: dict[int, _Flight] = {}
        self._arrivals: deque[tuple[int, float]] = deque()
        self._rows: deque[Row] = deque()
        self._ending = threading.Event()

    @property
    def has_ended(self) -> bool:
        """Whether no request is left to be played."""
        return not self._flights and (self._ending.is_set() or not self._left)

    def seat(self) -> Seat:
        """For a user that comes now."""
        return Seat(max(0.0, self._clock()))

    def play_next(self, seat: Seat) -> bool:
        """Plays one request for a user: the next of its session, or the first of another.

        False: there is none, or the run ends.
        """
        if not seat.rest and self._waiting:
            seat.rest = self._waiting.popleft()
        if self._ending.is_set() or not seat.rest:
            return False
        index = seat.rest.popleft()
        flight = self._take_off(index, seat.freed_s)
        try:
            answer = self._play(flight)
        except BaseException:
            self._user_left(index, flight, seat)
            raise
        if answer is None:
            self._flights.pop(index, None)
            return False
        self._land(index, answer)
        seat.freed_s = answer.ended_s
        return True

    def end(self, grace_s: float) -> None:
        """Hands nothing out any more; what is on its way has `grace_s` and is then cut off."""
        self._ending.set()
        self._await_landings(grace_s)
        for flight in list(self._flights.values()):
            if flight.call is not None:
                flight.call.abort()
        self._await_landings(_ABORTED_WITHIN_S)
        for index, flight in list(self._flights.items()):
            self._land(index, self._given_up(flight, RUN_ENDED))

    def news(self) -> News:
        """Each thing is told once."""
        return News(tuple(_drained(self._arrivals)), tuple(_drained(self._rows)))

    def _take_off(self, index: int, freed_s: float) -> _Flight:
        """In a closed loop a request arrives when the user was freed; else by its schedule."""
        request = self._requests[index]
        waited_s = 0.0
        if self._closed_loop:
            request = replace(request, scheduled_s=freed_s)
            self._arrivals.append((index, freed_s))
        else:
            waited_s = max(0.0, self._clock() - request.scheduled_s)
        flight = self._flights[index] = _Flight(request, waited_s)
        return flight

    def _play(self, flight: _Flight) -> Answer | None:
        """`None` when the run ended before the request was due."""
        due_s = flight.request.scheduled_s
        if not self._wait_until(due_s - CONNECT_AHEAD_S):
            return None
        flight.call = self._prepare(flight.request)
        if not self._wait_until(due_s):
            flight.call.release()
            return None
        flight.is_sent = True
        return flight.call.run()

    def _wait_until(self, time_s: float) -> bool:
        """Whether the time came before the run's end did."""
        while (left_s := time_s - self._clock()) > 0:
            if left_s > _TIMER_STEP_S:
                self._ending.wait(left_s - _TIMER_STEP_S)
            else:
                time.sleep(0)
            if self._ending.is_set():
                return False
        return not self._ending.is_set()

    def _user_left(self, index: int, flight: _Flight, seat: Seat) -> None:
        """What was not sent yet is left to the other users, the rest of a session too."""
        if flight.is_sent or self._ending.is_set():
            self._land(index, self._given_up(flight, USER_STOPPED))
        else:
            self._flights.pop(index, None)
            seat.rest.appendleft(index)
            if flight.call is not None:
                flight.call.release()
        if seat.rest:
            self._waiting.appendleft(seat.rest)

    def _given_up(self, flight: _Flight, reason: str) -> Answer:
        if flight.call is None:
            return Answer(None, self._clock(), "cancelled", None, reason)
        flight.call.abort()
        return flight.call.cancelled(reason)

    def _land(self, index: int, answer: Answer) -> None:
        """The first end that a request comes to is its end."""
        flight = self._flights.pop(index, None)
        if flight is None:
            return
        self._left -= 1
        row = Row(index, flight.request.scheduled_s, flight.waited_s, answer)
        self._rows.append(row)
        self._tell(flight.request, row)

    def _await_landings(self, time_s: float) -> None:
        until_s = self._clock() + time_s
        while self._flights and self._clock() < until_s:
            time.sleep(0.005)


def _drained(things: deque[T]) -> Iterator[T]:
    while things:
        yield things.popleft()
