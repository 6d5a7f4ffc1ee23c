"""A run as the gate sees it: what it measured, and on what kind of machine."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from harness.compare.case import Source
from harness.compare.inputs import read_own, short_names
from harness.compare.ours import source_of
from harness.gate.machine import Machine, machine_of


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two that are checked against each other."""

    source: Source
    machine: Machine


def read_side(path: Path) -> Side:
    """A run's folder or its run.json."""
    run = read_own(path)
    return Side(source_of(run, short_names([path])[0]), machine_of(run))
