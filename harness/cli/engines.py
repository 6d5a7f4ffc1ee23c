"""`cbbench engines`: what can be compared, and every setting."""

from __future__ import annotations

import typer


def engines() -> None:
    """List the installed engines with their settings, defaults and meanings."""
    from engines.registry import installed_engines
    from harness.show.catalogue import engine_lines

    for entry in installed_engines().values():
        for line in engine_lines(entry):
            typer.echo(line)
