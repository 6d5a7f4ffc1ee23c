"""Writes a cell's raw file while the engine runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from engines.api import Clock, EngineInfo, Request, StepEvents
from harness.records.schema import CellKey, CellSnapshot, CellTrailer


class CellRecorder:
    """A sink that appends one JSON line a step to `<folder>/raw/<key>.jsonl`.

    `emit` and `rescheduled` belong to the engine's thread, `snapshot` to any. A disk that fails
    raises `CbbenchError` at the next `emit` or at `close`; what was written stays readable.
    """

    def __init__(
        self,
        folder: Path,
        key: CellKey,
        requests: Sequence[Request],
        *,
        spec: str,
        info: EngineInfo,
        clock: Clock,
        save_outputs: bool = False,
    ) -> None:
        raise NotImplementedError

    def emit(self, events: StepEvents) -> None:
        raise NotImplementedError

    def rescheduled(self, requests: Sequence[Request]) -> None:
        """Notes arrivals that differ from the schedule given at the start."""
        raise NotImplementedError

    def snapshot(self) -> CellSnapshot:
        raise NotImplementedError

    def close(self, trailer: CellTrailer | None = None) -> None:
        """Writes the trailer and all that is buffered; again has no effect.

        Without a trailer the cell stays marked as interrupted.
        """
        raise NotImplementedError
