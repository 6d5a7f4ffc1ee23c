"""A run's folder, from its first byte to its closed form.

    open_run    settings.json, so that a killed run can still be read and reported
    close_run   requests.parquet, steps.parquet, run.json (atomically, last) and report.md

The names in run.json are METRICS.md's. `settings` is what the caller ran with, as JSON:

    workload   {name, seed, hash, settings, clipped}
    loads      [{name, request_rate (number or "inf"), max_concurrency}]
    rounds, goodput (the text of --goodput or null), baseline (an engine's label or null)

and anything else, which the report lists.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from engines.api import JsonValue


class RunFile:
    """run.json; replaced by the real one in the next commit."""


def open_run(
    folder: Path, settings: Mapping[str, JsonValue], environment: Mapping[str, JsonValue]
) -> None:
    """Makes the folder and writes settings.json, before the first cell."""
    raise NotImplementedError


def close_run(
    folder: Path,
    settings: Mapping[str, JsonValue] | None = None,
    environment: Mapping[str, JsonValue] | None = None,
) -> RunFile:
    """Reads the cells and writes the closed form. `None`: what `open_run` wrote.

    Works on an interrupted folder too, and again on a closed one.
    """
    raise NotImplementedError


def read_run(folder: Path) -> RunFile:
    """run.json, or the same computed from what an interrupted run left."""
    raise NotImplementedError


def render_report(folder: Path) -> str:
    """The text of report.md; writes nothing."""
    raise NotImplementedError
