"""`cbbench explain`: why a run's answers stood still, or what became of one request."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def explain(
    folder: Annotated[Path, typer.Argument(metavar="RESULTS", help="The folder of a run.")],
    request: Annotated[
        str | None, typer.Option(metavar="ID", help="Tell this request's story instead.")
    ] = None,
    engine: Annotated[
        str | None, typer.Option(metavar="LABEL", help="Only the cells of this engine.")
    ] = None,
    load: Annotated[
        str | None, typer.Option(metavar="NAME", help="Only the cells of this load.")
    ] = None,
    number: Annotated[
        int | None, typer.Option("--round", metavar="N", help="Only the cells of this round.")
    ] = None,
) -> None:
    """Name the ten worst stalls, their causes, and the settings that would shorten them."""
    from harness.explain.story import story_lines
    from harness.explain.text import stall_lines
    from harness.records import read_cells
    from harness.records.selection import Selection

    cells = Selection(engine, load, number).of(read_cells(folder))
    lines = stall_lines(cells) if request is None else story_lines(cells, request)
    for line in lines:
        typer.echo(line)
