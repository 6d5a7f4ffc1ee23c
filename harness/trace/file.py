"""Writes trace.json an event at a time, so that a long run costs no memory here."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final

from engines.api import CbbenchError
from harness.records import CellRecord
from harness.records.encoding import encode_line
from harness.trace.events import cell_events

TRACE_FILE: Final = "trace.json"


def write_trace(path: Path, cells: Iterable[CellRecord]) -> int:
    """The number of events. The file is whole or not there; raises `CbbenchError`."""
    unfinished = path.with_name(path.name + ".tmp")
    written = 0
    try:
        with unfinished.open("w", encoding="ascii", newline="\n") as file:
            file.write('{"displayTimeUnit":"ms","traceEvents":[\n')
            for pid, cell in enumerate(cells, 1):
                for event in cell_events(cell, pid):
                    file.write((",\n" if written else "") + encode_line(event))
                    written += 1
            file.write("\n]}\n")
        unfinished.replace(path)
    except OSError as error:
        why = error.strerror or type(error).__name__
        raise CbbenchError(f"cannot write {path}: {why}; give another file with -o") from error
    return written
