"""The two clocks: one that passes and one that is moved. Logic is handed one and asks no other."""

from __future__ import annotations

import time


class WallClock:
    """Monotonic wall time in seconds since this object was made, or since `restart()`."""

    def __init__(self) -> None:
        self._t0_s = time.perf_counter()

    def restart(self, at_s: float | None = None) -> None:
        """Makes now the new t0, or the instant `at_s` of `time.perf_counter()`."""
        self._t0_s = time.perf_counter() if at_s is None else at_s

    def now(self) -> float:
        return time.perf_counter() - self._t0_s

    def sleep_until(self, time_s: float) -> None:
        while (left_s := time_s - self.now()) > 0:
            time.sleep(left_s)


class VirtualClock:
    """Time that stands still until an executor's cost or a source's waiting moves it."""

    def __init__(self, start_s: float = 0.0) -> None:
        self._now_s = start_s

    def now(self) -> float:
        return self._now_s

    def advance(self, duration_s: float) -> None:
        """Moves on by `duration_s`, which must not be negative."""
        if not duration_s >= 0:
            raise ValueError(f"a clock cannot go back: {duration_s} s")
        self._now_s += duration_s

    def sleep_until(self, time_s: float) -> None:
        self._now_s = max(self._now_s, time_s)
