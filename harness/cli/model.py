"""`cbbench model`: the default model as files, for other servers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(help="Work with models.", no_args_is_help=False)


@app.command()
def export(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A model, as in --model.")],
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A new or empty folder.")],
) -> None:
    """Write a model and its tokenizer as a checkpoint that other servers load."""
    from engines.models.export import export_model

    export_model(name, folder)
    typer.echo(f"{name} is in {folder}")


@app.callback()
def _model() -> None:
    """Work with models."""
