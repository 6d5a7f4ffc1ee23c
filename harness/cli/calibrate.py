"""`cbbench calibrate`: how noisy this machine is, and whether the comparison cries wolf on it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer


def calibrate(
    out: Annotated[
        Path,
        typer.Option(metavar="DIR", help="The folder of its runs; one that was cut off goes on."),
    ],
    engine: Annotated[
        str, typer.Option(metavar="SPEC", help="The engine that is run against itself.")
    ] = "continuous",
    workload: Annotated[str, typer.Option(metavar="NAME", help="As in `run`.")] = "chat-mix",
    num_prompts: Annotated[
        str, typer.Option(metavar="N", help="Requests of a cell, all at once.")
    ] = "16",
    runs: Annotated[int, typer.Option(metavar="N", min=1, help="How many runs.")] = 20,
    repeats: Annotated[
        int, typer.Option(metavar="N", min=5, help="Rounds of each run, five or more.")
    ] = 8,
    model: Annotated[str, typer.Option(metavar="tiny|ID|PATH", help="As in `run`.")] = "tiny",
    device: Annotated[str, typer.Option(metavar="auto|cpu|cuda", help="As in `run`.")] = "auto",
    dtype: Annotated[str, typer.Option(metavar="TYPE", help="As in `run`.")] = "auto",
    threads: Annotated[str | None, typer.Option(metavar="N", help="As in `run`.")] = None,
) -> int:
    """Run an engine against itself, and tell false alarms and how many rounds a slow-down needs."""
    from harness.calibration.session import CalibrationPlan, run_calibration
    from harness.run.config import RunOptions

    options = RunOptions(
        engines=engine,
        workload=workload,
        num_prompts=num_prompts,
        request_rate="inf",
        repeats=str(repeats),
        model=model,
        device=device,
        dtype=dtype,
        threads=threads,
    )
    return run_calibration(CalibrationPlan(engine, runs, out, options), sys.stdout, sys.stderr)
