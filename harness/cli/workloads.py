"""`cbbench workloads`: the presets, what their requests look like, and how they are played."""

from __future__ import annotations

import typer


def workloads() -> None:
    """List the workloads with their lengths in tokens and their loads."""
    from harness.show.catalogue import workload_lines
    from workloads.listing import describe_presets

    for description in describe_presets():
        for line in workload_lines(description):
            typer.echo(line)
