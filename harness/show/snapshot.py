"""A run while it goes, as plain values: everything that any display may want to draw.

Holds no text made for a screen and draws nothing; `live` and `plain` do.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from harness.records import CellSnapshot

EngineState = Literal["loading", "ready", "warming up", "running", "done", "failed"]


@dataclass(frozen=True, slots=True)
class EngineStatus:
    """One engine now. `cell` is its latest cell of the present load, running or ended."""

    label: str
    state: EngineState
    cell: CellSnapshot | None = None
    error: str = ""

    @property
    def left_s(self) -> float | None:
        """Time until all requests have ended, at the pace so far; `None` when nothing says."""
        cell = self.cell
        if self.state != "running" or cell is None or not 0 < cell.done <= cell.total:
            return None
        return cell.elapsed_s / cell.done * (cell.total - cell.done)


@dataclass(frozen=True, slots=True)
class RunSnapshot:
    """The whole run now. `rounds` is the number expected in all, `None` while unknown.

    `left_s` is an estimate for the whole run and `None` until a round has been measured.
    """

    workload: str
    model: str
    load: str
    round: int
    rounds: int | None
    elapsed_s: float
    left_s: float | None
    engines: tuple[EngineStatus, ...]
    message: str = ""
