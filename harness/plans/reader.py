"""Reads plans.jsonl: which cells are in it, and a cell's turns one at a time.

Never holds more than a line of it. A cell is read up to the first line that is not whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from engines.api import CbbenchError, EngineInfo
from engines.loop.plan_log import Turn
from harness.plans.encoding import PLANS_VERSION, TurnDecoder
from harness.plans.writer import PLANS_FILE
from harness.records.encoding import info_from_json
from harness.records.reader import line_of
from harness.records.schema import CellKey

_HEADER: Final = b'{"v":'


@dataclass(frozen=True, slots=True)
class PlannedCell:
    """One cell of the file; its turns begin at byte `offset`."""

    key: CellKey
    info: EngineInfo
    path: Path
    offset: int

    def turns(self) -> Iterator[Turn]:
        """Raises `CbbenchError` for a line that no cbbench wrote."""
        decoder = TurnDecoder()
        with self.path.open("rb") as file:
            file.seek(self.offset)
            for raw in file:
                line = None if raw.startswith(_HEADER) else line_of(raw)
                if line is None:
                    return
                try:
                    yield decoder.decode(line)
                except (KeyError, TypeError, ValueError, IndexError) as error:
                    raise _unreadable(self.path, f"a turn of {self.key.engine!r}") from error


def read_plan_log(folder: Path) -> list[PlannedCell]:
    """The cells whose plans were saved, in the order in which they ran.

    Raises `CbbenchError` when there are none.
    """
    path = folder / PLANS_FILE
    if not path.is_file():
        raise CbbenchError(
            f"found no {PLANS_FILE} in {folder}; expected the folder of a run with --save-plans "
            "and an engine that plans steps (loop, continuous)"
        )
    cells = []
    with path.open("rb") as file:
        while raw := file.readline():
            if raw.startswith(_HEADER) and (header := line_of(raw)) is not None:
                cells.append(_cell(header, path, file.tell()))
    return cells


def _cell(header: Mapping[str, Any], path: Path, offset: int) -> PlannedCell:
    if header["v"] != PLANS_VERSION:
        raise CbbenchError(
            f"{path} is a log of version {header['v']!r}, expected {PLANS_VERSION}; "
            "read it with the cbbench that wrote it"
        )
    try:
        return PlannedCell(CellKey(*header["key"]), info_from_json(header["info"]), path, offset)
    except (KeyError, TypeError, ValueError) as error:
        raise _unreadable(path, "a cell's first line") from error


def _unreadable(path: Path, what: str) -> CbbenchError:
    return CbbenchError(f"cannot read {path}: {what} has another form; expected a file by cbbench")
