"""Raw records: written by a worker as events come, read by whoever computes or shows."""

from harness.records.reader import read_cells, read_raw_cells
from harness.records.schema import (
    CellKey,
    CellRecord,
    CellSnapshot,
    CellTrailer,
    Defects,
    RequestRecord,
)
from harness.records.source import RecordedSource
from harness.records.writer import CellRecorder

__all__ = [
    "CellKey",
    "CellRecord",
    "CellRecorder",
    "CellSnapshot",
    "CellTrailer",
    "Defects",
    "RecordedSource",
    "RequestRecord",
    "read_cells",
    "read_raw_cells",
]
