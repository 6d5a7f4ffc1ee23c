"""`cbbench compare`: finished runs side by side."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer


def compare(
    results: Annotated[
        list[Path],
        typer.Argument(
            metavar="A B ...",
            help="Folders of runs, run.json files, or other tools' files; A is the reference.",
        ),
    ],
    engine: Annotated[
        str | None,
        typer.Option(metavar="LABEL", help="Only this engine, of results that have several."),
    ] = None,
    load: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Only this load, of results that have several."),
    ] = None,
    unpaired: Annotated[
        bool,
        typer.Option(
            "--unpaired",
            help="Also results without a workload hash, such as those of vllm bench serve, "
            "guidellm, aiperf (their JSON) and locust (JSON or CSV).",
        ),
    ] = False,
    form: Annotated[
        str, typer.Option("--format", metavar="text|markdown|json", help="What is printed.")
    ] = "text",
    json: Annotated[
        str | None,
        typer.Option(metavar="FILE|-", help="Write the comparison as JSON too; -: to stdout."),
    ] = None,
) -> None:
    """Compare finished runs of the same workload; the first is the reference."""
    from harness.compare.across import compare_runs
    from harness.compare.encoding import compared_to_json
    from harness.compare.inputs import read_sources
    from harness.show.printing import Printing
    from harness.show.runs import runs_markdown, runs_text

    printing = Printing(form, json, sys.stdout, sys.stderr)
    compared = compare_runs(read_sources(results), unpaired=unpaired, engine=engine, load=load)
    printing.show(
        text=lambda width, encoding: runs_text(compared, width, encoding),
        markdown=lambda: runs_markdown(compared),
        json=lambda: compared_to_json(compared),
    )
