"""`cbbench run`: options in, exit code out. What they mean is `harness.run.config`'s to say."""

from __future__ import annotations

import sys
from typing import Annotated, Final

import typer

_ENGINES: Final = "static,loop[policy=static],continuous"


def run(
    context: typer.Context,
    engines: Annotated[
        str,
        typer.Option(
            metavar="SPEC,...",
            help="Engines: NAME or LABEL=NAME[key=value,...], with commas between them.",
        ),
    ] = _ENGINES,
    workload: Annotated[
        str,
        typer.Option(metavar="NAME|trace:PATH|jsonl:PATH", help="What arrives: see `workloads`."),
    ] = "chat-mix",
    model: Annotated[
        str, typer.Option(metavar="tiny|ID|PATH", help="A Hugging Face id, a folder, or tiny.")
    ] = "tiny",
    device: Annotated[str, typer.Option(metavar="auto|cpu|cuda", help="Where it runs.")] = "auto",
    dtype: Annotated[
        str,
        typer.Option(metavar="auto|bfloat16|float32|float16", help="Type of weights and cache."),
    ] = "auto",
    threads: Annotated[
        str | None, typer.Option(metavar="N", help="CPU threads of an engine; default: all cores.")
    ] = None,
    kv_memory: Annotated[
        str, typer.Option(metavar="SIZE", help="Memory for keys and values, equal for all engines.")
    ] = "512MiB",
    max_model_len: Annotated[
        str | None, typer.Option(metavar="N", help="Longest prompt plus answer, in tokens.")
    ] = None,
    client_processes: Annotated[
        str, typer.Option(metavar="N", help="Processes that send, for engines over HTTP.")
    ] = "1",
    num_prompts: Annotated[
        str | None, typer.Option(metavar="N", help="Requests of a cell; default: the workload's.")
    ] = None,
    request_rate: Annotated[
        str | None,
        typer.Option(
            metavar="RATE|inf",
            help="Requests a second, as the only load; default: the workload's loads.",
        ),
    ] = None,
    burstiness: Annotated[
        str | None,
        typer.Option(metavar="K|inf", help="Shape of the gaps: 1 is Poisson, inf is constant."),
    ] = None,
    max_concurrency: Annotated[
        str | None, typer.Option(metavar="N", help="Most requests at once; the rest wait outside.")
    ] = None,
    input_len: Annotated[
        str | None, typer.Option(metavar="N", help="Tokens of every prompt, for the workload's.")
    ] = None,
    output_len: Annotated[
        str | None, typer.Option(metavar="N", help="Tokens of every answer, for the workload's.")
    ] = None,
    range_ratio: Annotated[
        str, typer.Option(metavar="R", help="Spread of the two lengths, 0 <= R < 1.")
    ] = "0",
    trace_format: Annotated[
        str, typer.Option(metavar="FORMAT", help="The columns of trace:PATH.")
    ] = "azure",
    trace_scale: Annotated[
        str, typer.Option(metavar="X", help="Stretches a trace's times: 2 takes twice as long.")
    ] = "1",
    seed: Annotated[str, typer.Option(metavar="N", help="Of the workload and the order.")] = "0",
    goodput: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME:MS,...", help="Objectives, as in ttft:500,tpot:50; may be repeated."
        ),
    ] = None,
    num_warmups: Annotated[
        str, typer.Option(metavar="N", help="Requests served before each cell, not counted.")
    ] = "2",
    repeats: Annotated[
        str | None,
        typer.Option(metavar="N", help="Rounds; default: what fits the budget, up to 5."),
    ] = None,
    budget: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Time for the whole run, as in 110s; default: 115s."),
    ] = None,
    until_ci: Annotated[
        str | None,
        typer.Option(
            metavar="P%",
            help="Add rounds until the main ratio's interval reaches no further than P%.",
        ),
    ] = None,
    order: Annotated[
        str, typer.Option(metavar="random|fixed", help="Of the engines within a round.")
    ] = "random",
    ignore_eos: Annotated[
        bool,
        typer.Option(
            "--ignore-eos/--no-ignore-eos", help="Answers of the lengths asked for, or natural."
        ),
    ] = True,
    skip_chat_template: Annotated[
        bool,
        typer.Option(
            "--skip-chat-template", help="jsonl: prompts as they are, not as a user's message."
        ),
    ] = False,
    out: Annotated[
        str | None,
        typer.Option(metavar="DIR", help="A new or empty folder; default: results/<id>."),
    ] = None,
    json: Annotated[
        str | None, typer.Option(metavar="FILE|-", help="Write run.json there too; -: to stdout.")
    ] = None,
    save_outputs: Annotated[bool, typer.Option("--save-outputs", help="Keep token ids.")] = False,
    check_outputs: Annotated[
        bool,
        typer.Option(
            "--check-outputs", help="Exit with 1 unless all engines gave the same answers."
        ),
    ] = False,
    save_plans: Annotated[
        bool, typer.Option("--save-plans", help="Keep the plans of every step, for `replay`.")
    ] = False,
    save_trace: Annotated[
        bool, typer.Option("--save-trace", help="Write trace.json too, as `trace` does.")
    ] = False,
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit with 3 when a result is SUSPECT.")
    ] = False,
) -> int:
    """Run every engine on the same traffic and compare them."""
    from harness.run.config import RunOptions
    from harness.run.launch import launch

    options = RunOptions(
        engines=engines,
        workload=workload,
        model=model,
        device=device,
        dtype=dtype,
        threads=threads,
        kv_memory=kv_memory,
        max_model_len=max_model_len,
        client_processes=client_processes,
        num_prompts=num_prompts,
        request_rate=request_rate,
        burstiness=burstiness,
        max_concurrency=max_concurrency,
        input_len=input_len,
        output_len=output_len,
        range_ratio=range_ratio,
        trace_format=trace_format,
        trace_scale=trace_scale,
        seed=seed,
        goodput=tuple(goodput or ()),
        num_warmups=num_warmups,
        repeats=repeats,
        budget=budget,
        until_ci=until_ci,
        order=order,
        ignore_eos=ignore_eos,
        skip_chat_template=skip_chat_template,
        save_outputs=save_outputs,
        check_outputs=check_outputs,
        save_plans=save_plans,
        save_trace=save_trace,
        strict=strict,
        out=out,
        json=json,
    )
    return launch(options, context.obj, sys.stdout, sys.stderr)
