"""`cbbench serve`: options in, exit code out."""

from __future__ import annotations

import sys
from typing import Annotated

import typer


def serve(
    engine: Annotated[
        str,
        typer.Option(metavar="SPEC", help="The engine: NAME or NAME[key=value,...]."),
    ] = "continuous",
    model: Annotated[
        str, typer.Option(metavar="tiny|ID|PATH", help="A Hugging Face id, a folder, or tiny.")
    ] = "tiny",
    served_model_name: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="What clients call it; default: the model's own name."),
    ] = None,
    host: Annotated[
        str, typer.Option(metavar="ADDRESS", help="Where to listen; 0.0.0.0: everywhere.")
    ] = "127.0.0.1",
    port: Annotated[str, typer.Option(metavar="N", help="0: any that is free.")] = "8000",
    api_key_env: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="The environment variable that holds the API key."),
    ] = None,
    max_waiting: Annotated[
        str,
        typer.Option(metavar="N", help="Requests that may wait beside those with a slot."),
    ] = "256",
    max_body: Annotated[
        str, typer.Option(metavar="SIZE", help="The largest request body.")
    ] = "4MiB",
    device: Annotated[str, typer.Option(metavar="auto|cpu|cuda", help="Where it runs.")] = "auto",
    dtype: Annotated[
        str,
        typer.Option(metavar="auto|bfloat16|float32|float16", help="Type of weights and cache."),
    ] = "auto",
    threads: Annotated[
        str | None, typer.Option(metavar="N", help="CPU threads of the engine; default: all cores.")
    ] = None,
    kv_memory: Annotated[
        str, typer.Option(metavar="SIZE", help="Memory for keys and values.")
    ] = "512MiB",
    max_model_len: Annotated[
        str | None, typer.Option(metavar="N", help="Longest prompt plus answer, in tokens.")
    ] = None,
) -> int:
    """Serve an engine over HTTP, with OpenAI's API."""
    from harness.server.options import ServeOptions, read_serve_options

    config = read_serve_options(
        ServeOptions(
            engine=engine,
            model=model,
            served_model_name=served_model_name,
            host=host,
            port=port,
            api_key_env=api_key_env,
            max_waiting=max_waiting,
            max_body=max_body,
            device=device,
            dtype=dtype,
            threads=threads,
            kv_memory=kv_memory,
            max_model_len=max_model_len,
        )
    )
    from harness.server.serve import serve as run_server

    return run_server(config, sys.stdout, sys.stderr)
