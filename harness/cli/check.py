"""`cbbench check`: a run against a baseline, for CI."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer


def check(
    results: Annotated[
        Path, typer.Argument(metavar="RESULTS", help="The folder of a run, or its run.json.")
    ],
    baseline: Annotated[
        Path,
        typer.Option(
            metavar="DIR|FILE", help="A run's folder, or a file that `baseline update` wrote."
        ),
    ],
    metric: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="What gates; may be repeated. Default: output_throughput_tok_s.",
        ),
    ] = None,
    max_regression: Annotated[
        str, typer.Option(metavar="PERCENT", help="How much worse it may become.")
    ] = "5%",
    max_increase_abs: Annotated[
        str,
        typer.Option(metavar="X", help="How far it may rise from a measured 0, in its own unit."),
    ] = "0",
    relative_to: Annotated[
        str | None,
        typer.Option(
            metavar="LABEL",
            help="Divide by this engine's value of the same round: for shared machines.",
        ),
    ] = None,
    engine: Annotated[
        str | None, typer.Option(metavar="LABEL", help="Check only this engine.")
    ] = None,
    load: Annotated[str | None, typer.Option(metavar="NAME", help="Check only this load.")] = None,
    gate_tails: Annotated[
        bool,
        typer.Option("--gate-tails", help="p95 of TTFT, TPOT and E2E and the longest stall gate."),
    ] = False,
    strict: Annotated[
        bool, typer.Option("--strict", help="A SUSPECT case is inconclusive.")
    ] = False,
    junit: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write JUnit XML there.")
    ] = None,
    summary: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Write a Markdown summary there; default: at the end of $GITHUB_STEP_SUMMARY.",
        ),
    ] = None,
    form: Annotated[
        str, typer.Option("--format", metavar="text|markdown|json", help="What is printed.")
    ] = "text",
    json: Annotated[
        str | None, typer.Option(metavar="FILE|-", help="Write JSON too; -: to stdout.")
    ] = None,
) -> int:
    """Check a run against a baseline.

    Exits with 0: fine, 1: a regression, 3: inconclusive, 2: nothing that could be checked.
    """
    from harness.gate.limits import Limits, amount, percentage
    from harness.gate.options import DEFAULT_METRIC, CheckOptions
    from harness.gate.session import CheckFiles, check_and_tell
    from harness.show.printing import Printing

    options = CheckOptions(
        metrics=tuple(metric or (DEFAULT_METRIC,)),
        limits=Limits(
            percentage("--max-regression", max_regression),
            amount("--max-increase-abs", max_increase_abs),
        ),
        relative_to=relative_to,
        engine=engine,
        load=load,
        gate_tails=gate_tails,
        strict=strict,
    )
    step_summary = os.environ.get("GITHUB_STEP_SUMMARY")
    files = CheckFiles(junit, summary, Path(step_summary) if step_summary else None)
    printing = Printing(form, json, sys.stdout, sys.stderr)
    return check_and_tell(results, baseline, options, files, printing)
