"""Which cells a command takes."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from engines.api import CbbenchError
from harness.records import CellKey
from harness.records.selection import Selection


@dataclass(frozen=True)
class Cell:
    key: CellKey


CELLS = [Cell(CellKey(e, load, n)) for e in ("a", "b") for load in ("x", "y") for n in (1, 2)]


def test_nothing_asked_for_takes_all():
    assert Selection().of(CELLS) == CELLS


def test_each_part_narrows():
    assert Selection(engine="a").of(CELLS) == CELLS[:4]
    assert Selection(engine="b", load="y").of(CELLS) == CELLS[6:]
    assert Selection("b", "x", 2).of(CELLS) == [CELLS[5]]


def test_what_is_not_there_is_told_with_what_is():
    with pytest.raises(CbbenchError, match="no cell of engine 'c', round 3; there are engines"):
        Selection("c", round=3).of(CELLS)
    with pytest.raises(CbbenchError, match="engines a, b; loads x, y; rounds 1, 2"):
        Selection(load="z").of(CELLS)
    with pytest.raises(CbbenchError, match="no cell; there are none at all"):
        Selection().of([])
