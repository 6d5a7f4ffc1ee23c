"""Finishes the raw file of a worker that was killed, which could not do it itself.

Changes nothing that was written whole.
"""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path

from harness.records.encoding import encode_line
from harness.records.reader import line_of, read_raw_cell
from harness.records.schema import RAW_FOLDER, CellKey, CellTrailer


def record_death(folder: Path, key: CellKey, error: str) -> None:
    """Cuts a half-written last line off and adds a trailer that says how the engine ended.

    A cell that never wrote its first line, or has its trailer already, is left as it is.
    """
    path = folder / RAW_FOLDER / key.file_name
    record = read_raw_cell(path) if path.is_file() else None
    if record is None or record.trailer is not None:
        return
    trailer = CellTrailer(record.end_s, error=error)
    last = encode_line({"end": asdict(trailer)}) + "\n"
    written = path.read_bytes()
    whole_until = written.rfind(b"\n") + 1
    with path.open("r+b") as file:
        if line_of(written[whole_until:]) is None:
            file.truncate(whole_until)
        else:
            last = "\n" + last
        file.seek(0, os.SEEK_END)
        file.write(last.encode())
