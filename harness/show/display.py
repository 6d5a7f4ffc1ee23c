"""Where progress goes: a live table on a terminal, plain lines anywhere else.

Owns the stream and the pace; what is shown comes from `live` and `plain`. Slow or closed streams
cost the parent, never a worker.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final, Protocol, TextIO

from engines.api import Clock
from harness.show.plain import engine_line, progress_lines
from harness.show.snapshot import EngineStatus, RunSnapshot

_LIVE_EVERY_S: Final = 0.25
_PLAIN_EVERY_S: Final = 5.0


class Display(Protocol):
    """Listens to a run."""

    def update(self, run: RunSnapshot) -> None:
        """The run as it stands; called often, drawn at the display's own pace."""
        ...

    def cell_ended(self, run: RunSnapshot, engine: EngineStatus) -> None: ...

    def note(self, text: str) -> None:
        """A line that stays."""
        ...

    def close(self) -> None: ...


class PlainDisplay:
    """A line when a cell ends, and how it stands every few seconds."""

    def __init__(self, stream: TextIO, clock: Clock) -> None:
        self._stream = stream
        self._clock = clock
        self._next_s = clock.now() + _PLAIN_EVERY_S

    def update(self, run: RunSnapshot) -> None:
        if self._clock.now() >= self._next_s:
            self._write(*progress_lines(run))

    def cell_ended(self, run: RunSnapshot, engine: EngineStatus) -> None:
        self._write(f"{run.load}, round {run.round}: {engine_line(engine)}")

    def note(self, text: str) -> None:
        self._write(text)

    def close(self) -> None:
        self._stream.flush()

    def _write(self, *lines: str) -> None:
        self._stream.write("".join(f"{line}\n" for line in lines))
        self._stream.flush()
        self._next_s = self._clock.now() + _PLAIN_EVERY_S


class LiveDisplay:
    """One table that is drawn over; it stays as last drawn when closed."""

    def __init__(self, stream: TextIO, clock: Clock) -> None:
        from rich.console import Console
        from rich.live import Live

        self._console = Console(file=stream)
        self._live = Live(console=self._console, auto_refresh=False)
        self._clock = clock
        self._next_s = 0.0
        self._live.start()

    def update(self, run: RunSnapshot) -> None:
        if self._clock.now() >= self._next_s:
            self._draw(run)

    def cell_ended(self, run: RunSnapshot, engine: EngineStatus) -> None:
        self._draw(run)

    def note(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False)

    def close(self) -> None:
        self._live.stop()

    def _draw(self, run: RunSnapshot) -> None:
        from harness.show.live import render

        self._live.update(render(run), refresh=True)
        self._next_s = self._clock.now() + _LIVE_EVERY_S


def open_display(stream: TextIO, clock: Clock, environ: Mapping[str, str] = os.environ) -> Display:
    """Live on a terminal that can move its cursor, plain otherwise."""
    if stream.isatty() and environ.get("TERM", "dumb") != "dumb":
        return LiveDisplay(stream, clock)
    return PlainDisplay(stream, clock)
