"""Azure's CSV of LLM inference traces: TIMESTAMP, ContextTokens, GeneratedTokens.

Columns are found by name, further ones are left alone. Line ends may be CRLF or LF, with or
without a last one. Timestamps keep all digits of their fraction. Rows of 0 tokens are passed on:
whoever draws the requests clips them to 1 and counts that, so that every row stays an arrival.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from io import StringIO
from pathlib import Path
from typing import Final

from engines.api import CbbenchError
from workloads.traces.files import read_text
from workloads.traces.rows import Trace, TraceFormat, TraceRow

_COLUMNS: Final = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
_TIMESTAMP: Final = re.compile(
    r"(\d{4}-\d\d-\d\d)[ T](\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d)?", re.ASCII
)
_COUNT: Final = re.compile(r"\d{1,12}", re.ASCII)
_NS: Final = 10**9


def read_azure(path: Path) -> Trace:
    """The trace, sorted by time (stable), in seconds from its earliest row."""
    lines = _lines(path, read_text(path, "trace"))
    line, header = next(lines)
    columns = _find_columns(f"trace {path}, line {line}", header)
    rows = [_read_row(path, line, fields, header, columns) for line, fields in lines]
    if not rows:
        raise CbbenchError(f"trace {path} has a header but no rows; expected at least one row")
    rows.sort(key=lambda row: row[0])
    start_ns = rows[0][0]
    return Trace(
        path=path,
        format=AZURE.name,
        rows=tuple(TraceRow((ns - start_ns) / _NS, prompt, out) for ns, prompt, out in rows),
    )


def _lines(path: Path, text: str) -> Iterator[tuple[int, list[str]]]:
    """The fields of each line that is not blank, with its number in the file."""
    reader = csv.reader(StringIO(text, newline=""), strict=True)
    try:
        for fields in reader:
            stripped = [field.strip() for field in fields]
            if stripped not in ([], [""]):
                yield reader.line_num, stripped
    except csv.Error as error:
        raise CbbenchError(
            f"trace {path}, line {reader.line_num}: not CSV ({error}); mend or remove the line"
        ) from error


def _find_columns(where: str, header: Sequence[str]) -> tuple[int, int, int]:
    missing = [name for name in _COLUMNS if name not in header]
    if missing:
        raise CbbenchError(
            f"{where}: no column {', '.join(missing)} in {','.join(header)!r}; "
            f"expected the header {','.join(_COLUMNS)}"
        )
    time, prompt, output = (header.index(name) for name in _COLUMNS)
    return time, prompt, output


def _read_row(
    path: Path,
    line: int,
    fields: Sequence[str],
    header: Sequence[str],
    columns: tuple[int, int, int],
) -> tuple[int, int, int]:
    where = f"trace {path}, line {line}"
    if len(fields) != len(header):
        raise CbbenchError(
            f"{where}: {len(fields)} fields in {','.join(fields)!r}; expected {len(header)} "
            "as in the header"
        )
    time, prompt, output = columns
    return (
        _nanoseconds(where, fields[time]),
        _count(where, header[prompt], fields[prompt]),
        _count(where, header[output], fields[output]),
    )


def _count(where: str, column: str, text: str) -> int:
    if not _COUNT.fullmatch(text):
        raise CbbenchError(f"{where}: {column} is {text!r}; expected a whole number of tokens >= 0")
    return int(text)


def _nanoseconds(where: str, text: str) -> int:
    """Since the epoch; a time without an offset is taken as UTC, since only gaps matter."""
    match = _TIMESTAMP.fullmatch(text)
    try:
        if match is None:
            raise ValueError("no such form")
        day, clock, fraction, offset = match.groups()
        moment = datetime.fromisoformat(f"{day} {clock}{offset or '+00:00'}")
    except ValueError as error:
        raise CbbenchError(
            f"{where}: TIMESTAMP is {text!r}; expected a time such as 2023-11-16 18:15:46.6805900"
        ) from error
    seconds = (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(seconds=1)
    return seconds * _NS + int((fraction or "").ljust(9, "0"))


AZURE: Final = TraceFormat(
    name="azure",
    summary="Azure LLM inference traces: CSV with TIMESTAMP, ContextTokens, GeneratedTokens",
    read=read_azure,
)
