"""`cbbench replay`: the plans of a finished run, made again."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def replay(
    folder: Annotated[
        Path, typer.Argument(metavar="RESULTS", help="The folder of a run with --save-plans.")
    ],
    engine: Annotated[
        str | None, typer.Option(metavar="LABEL", help="Only the cells of this engine.")
    ] = None,
    load: Annotated[
        str | None, typer.Option(metavar="NAME", help="Only the cells of this load.")
    ] = None,
    number: Annotated[
        int | None, typer.Option("--round", metavar="N", help="Only the cells of this round.")
    ] = None,
) -> int:
    """Plan a run's steps again on a virtual clock. Exits with 1 when a plan differs."""
    from harness.plans.again import replay_cells, replay_lines
    from harness.plans.reader import read_plan_log
    from harness.records.selection import Selection

    replays = replay_cells(Selection(engine, load, number).of(read_plan_log(folder)))
    for line in replay_lines(replays):
        typer.echo(line)
    return int(any(done.outcome.difference is not None for done in replays))
