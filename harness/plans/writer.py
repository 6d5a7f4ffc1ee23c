"""Writes plans.jsonl, a cell behind the other, while the engines run.

One line a turn, encoded in the engine's thread: a run that saves its plans is slowed by it.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from engines.api import EngineInfo
from engines.loop.plan_log import Turn
from harness.plans.encoding import PLANS_VERSION, TurnEncoder
from harness.records.encoding import encode_line, info_to_json
from harness.records.line_file import ByteStream, LineFile
from harness.records.schema import CellKey

PLANS_FILE: Final = "plans.jsonl"


class PlanLog:
    """A `TurnObserver` that appends one cell to the file of a run.

    The file is touched at the first turn, so an engine that plans no steps leaves nothing there.
    """

    def __init__(self, folder: Path, key: CellKey, spec: str, info: EngineInfo) -> None:
        self._path = folder / PLANS_FILE
        self._header = {
            "v": PLANS_VERSION,
            "key": [key.engine, key.load, key.round],
            "spec": spec,
            "info": info_to_json(info),
        }
        self._encoder = TurnEncoder()
        self._file: LineFile | None = None

    def turn(self, turn: Turn) -> None:
        if self._file is None:
            self._file = LineFile(self._path, open_at_end)
            self._file.append(encode_line(self._header))
        self._file.append(encode_line(self._encoder.encode(turn)))

    def close(self) -> None:
        """Raises `CbbenchError` when not all could be written."""
        if self._file is not None:
            self._file.close()


class PlanTap:
    """The observer that an engine is built with: passes turns on to `log` while there is one."""

    def __init__(self) -> None:
        self.log: PlanLog | None = None

    def turn(self, turn: Turn) -> None:
        if self.log is not None:
            self.log.turn(turn)


def open_at_end(path: Path) -> ByteStream:
    """Ends a half line that a killed writer left, so that what comes is whole again."""
    stream = path.open("a+b", buffering=0)
    if stream.seek(0, os.SEEK_END):
        stream.seek(-1, os.SEEK_END)
        if stream.read(1) != b"\n":
            stream.write(b"\n")
    return stream
