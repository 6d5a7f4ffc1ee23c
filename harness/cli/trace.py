"""`cbbench trace`: a run for Perfetto."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def trace(
    folder: Annotated[Path, typer.Argument(metavar="RESULTS", help="The folder of a run.")],
    engine: Annotated[
        str | None, typer.Option(metavar="LABEL", help="Only the cells of this engine.")
    ] = None,
    load: Annotated[
        str | None, typer.Option(metavar="NAME", help="Only the cells of this load.")
    ] = None,
    number: Annotated[
        int | None, typer.Option("--round", metavar="N", help="Only the cells of this round.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("-o", "--out", metavar="FILE", help="Default: trace.json in the folder."),
    ] = None,
) -> None:
    """Write a run's requests and steps as a trace that Perfetto (ui.perfetto.dev) opens."""
    from harness.records import read_cells
    from harness.records.selection import Selection
    from harness.trace import TRACE_FILE, write_trace

    cells = Selection(engine, load, number).of(read_cells(folder))
    path = folder / TRACE_FILE if out is None else out
    events = write_trace(path, cells)
    typer.echo(f"{path}: {events} events of {len(cells)} cells; open it at https://ui.perfetto.dev")
