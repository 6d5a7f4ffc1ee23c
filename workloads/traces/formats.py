"""The table of trace formats. A format is declared by the user, not recognised."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

from workloads.suggest import unknown
from workloads.traces.azure import AZURE
from workloads.traces.rows import Trace, TraceFormat

FORMATS: Final[Mapping[str, TraceFormat]] = MappingProxyType(
    {trace_format.name: trace_format for trace_format in (AZURE,)}
)


def read_trace(path: Path, format_name: str) -> Trace:
    """Reads the whole trace. Raises `CbbenchError` for an unknown format or a bad file."""
    if format_name not in FORMATS:
        raise unknown("trace format", format_name, FORMATS)
    return FORMATS[format_name].read(path)
