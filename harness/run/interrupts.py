"""Ctrl-C and SIGTERM: the first asks for an orderly end, the second ends at once.

Only notes what came; who runs the experiment looks and decides when to stop.
"""

from __future__ import annotations

import signal
from types import FrameType, TracebackType
from typing import Final

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


class Interrupts:
    """While entered, the two signals are noted. A second one raises `KeyboardInterrupt`."""

    def __init__(self) -> None:
        self.received: signal.Signals | None = None
        self._before: dict[signal.Signals, object] = {}

    @property
    def exit_code(self) -> int:
        """What a shell expects of a program that this signal ended: 130 or 143."""
        return 128 + (self.received or signal.SIGINT)

    def __enter__(self) -> Interrupts:
        for number in _SIGNALS:
            self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.received is not None:
            raise KeyboardInterrupt
        self.received = signal.Signals(number)
