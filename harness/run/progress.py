"""How a run stands: gathers what happens and hands snapshots to a display.

The one owner of the state that is shown. Decides nothing and measures nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from engines.api import Clock
from harness.show.display import Display
from harness.show.snapshot import EngineState, EngineStatus, RunSnapshot
from harness.worker.protocol import CellDone, Progress


class ProgressBoard:
    """Told by the experiment, read by the display. `clock` counts from the program's start."""

    def __init__(
        self, display: Display, clock: Clock, *, workload: str, model: str, labels: Sequence[str]
    ) -> None:
        self._display = display
        self._clock = clock
        self._engines = {label: EngineStatus(label, "loading") for label in labels}
        self._ends_at_s: float | None = None
        self._run = RunSnapshot(
            workload=workload,
            model=model,
            load="",
            round=0,
            rounds=None,
            elapsed_s=0.0,
            left_s=None,
            engines=(),
        )

    def snapshot(self) -> RunSnapshot:
        """The run as it stands now."""
        now_s = self._clock.now()
        ends_at_s = self._ends_at_s
        return replace(
            self._run,
            elapsed_s=now_s,
            left_s=None if ends_at_s is None else max(0.0, ends_at_s - now_s),
            engines=tuple(self._engines.values()),
        )

    def tick(self) -> None:
        self._display.update(self.snapshot())

    def built(self, labels: Iterable[str]) -> None:
        for label in labels:
            self._set(label, "ready")

    def round_begins(self, number: int, rounds: int | None, longest_s: float | None) -> None:
        """`longest_s` is the longest round so far, for the estimate of what is left."""
        self._run = replace(self._run, round=number, rounds=rounds)
        if rounds is not None and longest_s is not None:
            self._ends_at_s = self._clock.now() + longest_s * (rounds - number + 1)

    def load_begins(self, load: str) -> None:
        self._run = replace(self._run, load=load)
        for label, engine in self._engines.items():
            if engine.state != "failed":
                self._engines[label] = EngineStatus(label, "ready")

    def cell_begins(self, label: str) -> None:
        self._set(label, "warming up")
        self.tick()

    def cell_goes_on(self, message: Progress) -> None:
        if message.snapshot is not None:
            status = EngineStatus(message.key.engine, "running", message.snapshot)
            self._engines[message.key.engine] = status

    def cell_ended(self, done: CellDone) -> None:
        label = done.key.engine
        ended = replace(done.snapshot, running=0, waiting=0)
        self._engines[label] = EngineStatus(label, "done", ended)
        self._display.cell_ended(self.snapshot(), self._engines[label])

    def failed(self, label: str, error: str) -> None:
        self._engines[label] = replace(self._engines[label], state="failed", error=error)
        self._display.cell_ended(self.snapshot(), self._engines[label])

    def note(self, text: str) -> None:
        self._display.note(text)

    def _set(self, label: str, state: EngineState) -> None:
        self._engines[label] = replace(self._engines[label], state=state)
