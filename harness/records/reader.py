"""Reads cells back, from Parquet when the run was closed and from raw lines when it was not.

A raw file is read up to the first line that cannot be: a killed writer leaves half a line at the
end. What a sound engine never sends is counted as a defect and left out.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from engines.api import CbbenchError
from harness.paths import is_file, is_folder
from harness.records.assembly import CellAssembly
from harness.records.parquet import CLOSED_FILES, read_parquet_cells
from harness.records.schema import RAW_FOLDER, RAW_VERSION, CellRecord

_NO_RECORD: Final = (KeyError, TypeError, ValueError, IndexError, AttributeError)
_NOTHING_HERE: Final = "expected a run's folder with raw/*.jsonl or run.json; check the path"


def read_cells(run_folder: Path) -> list[CellRecord]:
    """All cells of a run in the order they are named; the same values from either form.

    Raises `CbbenchError` when the folder holds no run.
    """
    if all(is_file(run_folder / name) for name in CLOSED_FILES):
        return read_parquet_cells(run_folder)
    return read_raw_cells(run_folder)


def read_raw_cells(run_folder: Path) -> list[CellRecord]:
    """The cells of the raw files; a file without even a first line is passed over."""
    folder = run_folder / RAW_FOLDER
    if not is_folder(folder):
        raise CbbenchError(f"found no run in {run_folder}; {_NOTHING_HERE}")
    cells = [read_raw_cell(path) for path in folder.glob("*.jsonl")]
    return sorted((cell for cell in cells if cell is not None), key=lambda cell: cell.key)


def read_raw_cell(path: Path) -> CellRecord | None:
    """One raw file; `None` when it was cut before its first line was whole."""
    lines = _whole_lines(path)
    header = next(lines, None)
    if header is None:
        return None
    if header.get("v") != RAW_VERSION:
        raise CbbenchError(
            f"{path} is a record of version {header.get('v')!r}, expected {RAW_VERSION}; "
            "read it with the cbbench that wrote it"
        )
    try:
        cell = CellAssembly(header)
        for line in lines:
            cell.add(line)
        return cell.finished()
    except _NO_RECORD as error:
        raise CbbenchError(
            f"{path} holds a line that cbbench never writes ({type(error).__name__}: {error}); "
            "take the file as it was recorded, or take it away"
        ) from error


def line_of(raw: bytes) -> Mapping[str, Any] | None:
    """A line's content; `None` for one that is not whole."""
    try:
        line = json.loads(raw)
    except (ValueError, RecursionError):
        return None
    return line if isinstance(line, dict) else None


def _whole_lines(path: Path) -> Iterator[Mapping[str, Any]]:
    try:
        with path.open("rb") as file:
            for raw in file:
                line = line_of(raw)
                if line is None:
                    return
                yield line
    except OSError as error:
        raise CbbenchError(f"cannot read {path}: {error.strerror}; {_NOTHING_HERE}") from error
