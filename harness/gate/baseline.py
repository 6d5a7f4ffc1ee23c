"""What a run is checked against: a run's folder, or a small file that `baseline update` writes.

One file serves several kinds of machine, each with a part of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from engines.api import CbbenchError
from harness.compare.matching import case_name
from harness.gate.machine import Machine
from harness.gate.side import Side, read_side
from harness.gate.stored import VERSION_KEY, baseline_text, json_object, read_stored, sides_of
from harness.paths import exists, is_folder


@dataclass(frozen=True, slots=True)
class Baseline:
    """A side for each kind of machine. `name` stands in output."""

    name: str
    sides: tuple[Side, ...]

    def on(self, machine: Machine) -> Side | None:
        return next((side for side in self.sides if side.machine.same_kind(machine)), None)


def read_baseline(path: Path) -> Baseline:
    """Raises `CbbenchError` for what is missing, unreadable or neither form."""
    if not exists(path):
        raise CbbenchError(
            f"there is no baseline {path}; make it with: cbbench baseline update RESULTS "
            f"--baseline {path}"
        )
    if is_folder(path) or VERSION_KEY not in json_object(path):
        side = read_side(path)
        return Baseline(side.source.name, (side,))
    return Baseline(path.name, tuple(sides_of(read_stored(path), path.name)))


def updated_baseline(path: Path, side: Side) -> str:
    """The file's new text: `side` in place of what it held of this kind of machine.

    Raises `CbbenchError` for a run that is no baseline, and for a file of other requests.
    """
    _check_worth(side)
    if not exists(path):
        return baseline_text(side, ())
    stored, source = read_stored(path), side.source
    if (stored.workload_hash, stored.goodput) != (source.workload_hash, source.goodput):
        raise CbbenchError(
            f"{path} is of other requests or other goodput bounds ({stored.workload}, hash "
            f"{stored.workload_hash[:12]}, {stored.goodput}) than {source.name}; give another "
            "file, or take this one away first"
        )
    others = [other for other in sides_of(stored, path.name) if other.machine != side.machine]
    return baseline_text(side, others)


def _check_worth(side: Side) -> None:
    source = side.source
    if source.workload_hash is None:
        raise CbbenchError(f"{source.name} has no workload hash; a baseline needs one, run again")
    if not source.cases:
        raise CbbenchError(f"{source.name} has no result; a baseline is made of a whole run")
    for case in source.cases:
        if not case.offered or case.ok != case.offered or case.unfinished:
            raise CbbenchError(
                f"{case_name(case)} has {case.ok} of {case.offered} requests ok and "
                f"{case.unfinished} unfinished rounds; a baseline is made of a sound run"
            )
