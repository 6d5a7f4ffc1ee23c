"""Which cells of a run a command is about: by engine, load and round."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from engines.api import CbbenchError
from harness.records.schema import CellKey


class Keyed(Protocol):
    @property
    def key(self) -> CellKey: ...


Cell = TypeVar("Cell", bound=Keyed)


@dataclass(frozen=True, slots=True)
class Selection:
    """`None` stands for all."""

    engine: str | None = None
    load: str | None = None
    round: int | None = None

    def of(self, cells: Sequence[Cell]) -> list[Cell]:
        """Raises `CbbenchError`, naming what there is, when nothing is left."""
        chosen = [cell for cell in cells if self._takes(cell.key)]
        if not chosen:
            raise CbbenchError(f"found {self._wanted()}; there are {_names(cells)}")
        return chosen

    def _takes(self, key: CellKey) -> bool:
        return (
            self.engine in (None, key.engine)
            and self.load in (None, key.load)
            and self.round in (None, key.round)
        )

    def _wanted(self) -> str:
        parts = {"engine": self.engine, "load": self.load, "round": self.round}
        named = [f"{name} {value!r}" for name, value in parts.items() if value is not None]
        return "no cell of " + ", ".join(named) if named else "no cell"


def _names(cells: Sequence[Keyed]) -> str:
    if not cells:
        return "none at all"
    keys = [cell.key for cell in cells]
    columns = (
        ("engines", dict.fromkeys(key.engine for key in keys)),
        ("loads", dict.fromkeys(key.load for key in keys)),
        ("rounds", dict.fromkeys(str(key.round) for key in keys)),
    )
    return "; ".join(f"{name} {', '.join(values)}" for name, values in columns)
