"""`cbbench certify`: how many streams a second the client of this machine can send."""

from __future__ import annotations

from typing import Annotated

import typer


def certify(
    rates: Annotated[
        str, typer.Option(metavar="R,R,...", help="Requests a second, tried in this order.")
    ] = "25,50,100,150,200,300,400,500",
    seconds: Annotated[str, typer.Option(metavar="S", help="Of sending, for each rate.")] = "4",
    tokens: Annotated[str, typer.Option(metavar="N", help="Of each answer, a chunk each.")] = "100",
    prompt_tokens: Annotated[str, typer.Option(metavar="N", help="Of each prompt.")] = "200",
    gap_ms: Annotated[str, typer.Option(metavar="MS", help="From chunk to chunk.")] = "10",
    client_processes: Annotated[str, typer.Option(metavar="N", help="Processes that send.")] = "1",
) -> int:
    """Find the highest rate at which the client's lag stays under 5 ms, without any model."""
    from engines.remote.ladder import climb
    from harness.run.certify_options import read_certify_options
    from harness.show.certificates import TITLES, certificate_line, summary_line

    rungs = read_certify_options(rates, seconds, tokens, prompt_tokens, gap_ms, client_processes)
    typer.echo(TITLES)
    found = []
    for certificate in climb(rungs):
        found.append(certificate)
        typer.echo(certificate_line(certificate))
    typer.echo(summary_line(found))
    return 0 if found[0].passed else 1
