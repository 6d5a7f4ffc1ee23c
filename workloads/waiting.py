"""Waiting that another thread can cut short on a wall clock, and that moves a virtual one.

Knows neither requests nor arrivals: the sources decide until when.
"""

from __future__ import annotations

import math
import threading
from typing import Protocol, runtime_checkable

from engines.api import Clock


@runtime_checkable
class _Movable(Protocol):
    """A clock that stands still until it is moved; waiting on it moves it."""

    def advance(self, duration_s: float) -> None: ...


class Waiter:
    """Waits on either clock: a wall clock's wait can be cut short, a virtual clock is moved.

    News (an arrival, a finish) ends a wait once and is forgotten when `take` has seen it. A wake
    is only forgotten by a wait, so that a stop cannot be lost between a check and the wait.
    """

    def __init__(self, clock: Clock, *, fed_by_threads: bool = False) -> None:
        self.lock = threading.Condition()
        self._clock = clock
        self._fed_by_threads = fed_by_threads
        self._has_news = False
        self._woken = False

    def tell(self) -> None:
        with self.lock:
            self._has_news = True
            self.lock.notify_all()

    def seen(self) -> None:
        self._has_news = False

    def wake(self) -> None:
        with self.lock:
            self._woken = True
            self.lock.notify_all()

    def wait_until(self, time_s: float) -> None:
        """Raises `RuntimeError` for a wait on a virtual clock that nothing can ever end."""
        with self.lock:
            if isinstance(self._clock, _Movable) and not self._waits_for_threads(time_s):
                self._move(time_s)
            else:
                self._sleep(time_s)
            self._has_news = self._woken = False

    def _waits_for_threads(self, time_s: float) -> bool:
        return time_s == math.inf and self._fed_by_threads

    def _is_cut_short(self) -> bool:
        return self._has_news or self._woken

    def _move(self, time_s: float) -> None:
        if self._is_cut_short():
            return
        if time_s == math.inf:
            raise RuntimeError("waiting without end on a virtual clock: nothing is due any more")
        self._clock.sleep_until(time_s)

    def _sleep(self, time_s: float) -> None:
        while not self._is_cut_short() and (left_s := time_s - self._clock.now()) > 0:
            self.lock.wait(None if left_s == math.inf else min(left_s, threading.TIMEOUT_MAX))
