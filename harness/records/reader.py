"""Reads cells back, from Parquet when the run was closed and from raw lines when it was not."""

from __future__ import annotations

from pathlib import Path

from harness.records.schema import CellRecord


def read_cells(run_folder: Path) -> list[CellRecord]:
    """All cells of a run in the order of their keys; the same values from either form."""
    raise NotImplementedError


def read_raw_cell(path: Path) -> CellRecord:
    """One raw file, up to the first line that cannot be read."""
    raise NotImplementedError
