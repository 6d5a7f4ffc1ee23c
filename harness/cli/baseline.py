"""`cbbench baseline`: what later runs are checked against."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(help="Keep a baseline for `cbbench check`.", no_args_is_help=True)


@app.callback()
def _baseline() -> None:
    """Keep a baseline for `cbbench check`."""


@app.command()
def update(
    results: Annotated[
        Path, typer.Argument(metavar="RESULTS", help="The folder of a run, or its run.json.")
    ],
    baseline: Annotated[
        Path, typer.Option(metavar="FILE", help="A new file, or one to bring up to date.")
    ],
) -> None:
    """Write a run's values into a baseline, in place of those of the same kind of machine."""
    from harness.gate.baseline import updated_baseline
    from harness.gate.side import read_side
    from harness.show.gate import baseline_told
    from harness.show.printing import check_file, write_file

    check_file("--baseline", baseline)
    side = read_side(results)
    write_file("--baseline", baseline, updated_baseline(baseline, side))
    for line in baseline_told(side, baseline.name):
        typer.echo(line)
