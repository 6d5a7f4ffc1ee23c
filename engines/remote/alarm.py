"""A timer of an event loop that rings to the tenth of a millisecond.

Loops count in whole milliseconds, which is most of a client's lag on an idle machine. Linux has
timers that are files; where there are none, the loop's own must do.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
from collections.abc import Callable
from contextlib import suppress
from typing import Final

_CLOCK_MONOTONIC: Final = 1
_NONBLOCK_CLOEXEC: Final = 0o4000 | 0o2000000
_SHORTEST_S: Final = 1e-6  # zero would disarm


class _Timespec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


class _Itimerspec(ctypes.Structure):
    _fields_ = (("interval", _Timespec), ("value", _Timespec))


class Alarm:
    """Calls `ring` once after each `set`; a later `set` replaces one that has not rung."""

    def __init__(self, loop: asyncio.AbstractEventLoop, ring: Callable[[], None]) -> None:
        self._loop = loop
        self._ring = ring
        self._handle: asyncio.TimerHandle | None = None
        self._libc, self._file = _open_timer()
        if self._file is not None:
            loop.add_reader(self._file, self._ringing)

    @property
    def precise(self) -> bool:
        return self._file is not None

    def set(self, delay_s: float) -> None:
        if self._file is None or self._libc is None:
            self.cancel()
            self._handle = self._loop.call_later(delay_s, self._ring)
            return
        seconds, rest_s = divmod(max(delay_s, _SHORTEST_S), 1.0)
        spec = _Itimerspec(_Timespec(0, 0), _Timespec(int(seconds), int(rest_s * 1e9)))
        self._libc.timerfd_settime(self._file, 0, ctypes.byref(spec), None)

    def cancel(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        if self._file is not None and self._libc is not None:
            self._libc.timerfd_settime(self._file, 0, ctypes.byref(_Itimerspec()), None)

    def close(self) -> None:
        self.cancel()
        if self._file is not None:
            self._loop.remove_reader(self._file)
            os.close(self._file)
            self._file = None

    def _ringing(self) -> None:
        with suppress(BlockingIOError):
            os.read(self._file or 0, 8)
            self._ring()


def _open_timer() -> tuple[ctypes.CDLL | None, int | None]:
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        file = int(libc.timerfd_create(_CLOCK_MONOTONIC, _NONBLOCK_CLOEXEC))
    except (OSError, AttributeError):
        return None, None
    return (libc, file) if file >= 0 else (None, None)
