"""What every trace becomes, whatever its file looks like."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class TraceRow:
    """One request of a trace, lengths in tokens as the file has them (0 is possible)."""

    arrival_s: float
    prompt_tokens: int
    output_tokens: int


@dataclass(frozen=True, slots=True)
class Trace:
    """All rows in order of arrival, ties in the file's order; the first arrives at 0."""

    path: Path
    format: str
    rows: tuple[TraceRow, ...]


@dataclass(frozen=True, slots=True)
class TraceFormat:
    """A format that can be declared. Units and block sizes are the format's, never guessed.

    `read` raises `CbbenchError` naming the file, the line, what was got and what was expected.
    """

    name: str
    summary: str
    read: Callable[[Path], Trace]
