"""`cbbench report`: the comparison of a run that has been made."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer


def report(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The folder of a run.")],
) -> None:
    """Show a run again. Works for an interrupted one too, and then writes its files."""
    from harness.run.session import show_again

    typer.echo(show_again(folder, sys.stdout))
