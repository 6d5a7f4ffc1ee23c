"""The end of a run: what is written about it, what is printed, and the exit code.

Pure but for `close`, which writes the folder.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from engines.api import EngineInfo, JsonValue, PromptLimits
from engines.registry import BuildContext
from harness.locust_load.collector import Tally
from harness.locust_load.options import LoadOptions, PromptForm
from harness.locust_load.plan import LoadPlan
from harness.metrics import parse_goodput
from harness.metrics.results import CellResult
from harness.places import without_folders
from harness.results.file import RunFile, close_run
from harness.run.settings import describe_loads, describe_workload
from harness.show.report import comparison_text
from workloads.workload import ModelLimits

OK: Final = 0
MISSED: Final = 1
SUSPECT: Final = 3


@dataclass(frozen=True, slots=True)
class Outcome:
    """`lines` are for people, `summary` is one of them for a log.

    `code` is the process's, and `reasons` say why it is not 0, unless the run was broken off.
    """

    code: int
    reasons: Sequence[str]
    lines: Sequence[str]
    summary: str


@dataclass(frozen=True, slots=True)
class Setting:
    """How a run was driven, as far as that is known before it begins."""

    options: LoadOptions
    plan: LoadPlan
    prompt_form: PromptForm
    limits: ModelLimits
    workers: int
    locust_version: str
    notes: tuple[str, ...] = ()


def spec_of(options: LoadOptions) -> str:
    """The engine spec that would call the same server without locust."""
    address = f"{options.host}/v1"
    return without_folders(f"openai[base_url={address},model={model_name(options)}]")


def model_name(options: LoadOptions) -> str:
    return BuildContext(model=options.model).model_name


def engine_info(setting: Setting) -> EngineInfo:
    """What a client can say of a server; what only the server knows is `None`."""
    options, limits = setting.options, setting.limits
    remote = options.remote(setting.prompt_form)
    return EngineInfo(
        name="openai",
        settings={
            "base_url": f"{remote.root}/v1",
            "model": model_name(options),
            "api": remote.api,
            "api_key_env": remote.api_key_env,
            "send_token_ids": remote.sends_ids,
            "extensions": remote.extensions,
            "extra_body": dict(remote.extra_body),
            "idle_timeout": remote.idle_timeout,
            "vocab_size": limits.vocab_size,
            "client": f"locust {setting.locust_version}",
        },
        max_model_len=limits.max_model_len,
        slots=None,
        notes=(
            f"called by locust: {options.users} users on {_workers(setting.workers)}",
            *setting.notes,
        ),
        prompts=PromptLimits(limits.vocab_size, limits.special_token_ids),
    )


def describe(setting: Setting) -> dict[str, JsonValue]:
    """run.json's `settings`, as they are known at the start."""
    options = setting.options
    return {
        "goodput": options.goodput,
        "model": model_name(options),
        "seed": options.seed,
        "num_warmups": options.num_warmups,
        "ignore_eos": options.ignore_eos,
        "client": f"locust {setting.locust_version}",
        "users": options.users,
        "load_workers": setting.workers,
        "api": options.api,
        "prompt_form": setting.prompt_form,
        "idle_timeout_s": options.idle_timeout_s,
        "min_attainment": options.min_attainment if options.goodput else None,
        "max_fail_ratio": options.max_fail_ratio,
        "rounds": 1,
        "rounds_reason": "locust runs one round",
        "engine_order": [options.label],
        "loads": describe_loads([setting.plan.load]),
        "workload": describe_workload(setting.plan.workload),
    }


def describe_tally(
    tally: Tally, users: int, workers: int, clock_uncertainty_s: float | None, lost_workers: int
) -> dict[str, JsonValue]:
    """What only the run itself could show. A request can be played by its own worker's users."""
    whose = f"all {users} users" if workers == 1 else "all users of their load worker"
    waits = f"{tally.waits} requests were due while {whose} were busy"
    if tally.waits:
        waits += f", the longest for {tally.longest_wait_s:.3f} s; their wait counts as latency"
    return {
        "waits_for_a_user": waits,
        "lost_load_workers": lost_workers,
        "rows_that_came_too_late": tally.late_rows,
        "clock_uncertainty_ms": None if clock_uncertainty_s is None else clock_uncertainty_s * 1e3,
    }


def close(
    folder: Path,
    options: LoadOptions,
    settings: Mapping[str, JsonValue],
    environment: Mapping[str, JsonValue],
    encoding: str,
) -> Outcome:
    """Raises `CbbenchError` when the folder cannot be written."""
    run = close_run(folder, settings, environment)
    (cell,) = run.results
    code, reasons = judge(cell, options)
    warnings = [f"warning: {text}" for text in parse_goodput(options.goodput).warnings]
    summary = total_line(cell)
    lines = [
        comparison_text(run, None, encoding).strip(),
        "",
        *warnings,
        summary,
        *_waits(settings),
        *_verdict(run),
        f"report: {folder / 'report.md'}",
        f"results: {folder / 'run.json'}",
    ]
    return Outcome(code, reasons, lines, summary)


def judge(cell: CellResult, options: LoadOptions) -> tuple[int, list[str]]:
    """The exit code and why it is not 0. Requests that the run's end cut off do not count."""
    counts = cell.counts
    ended = counts.offered - counts.cancelled
    bad = ended - counts.ok
    reasons = []
    if not counts.ok:
        reasons.append("no request was ok")
    elif bad > options.max_fail_ratio * ended:
        reasons.append(
            f"{bad} of {ended} requests were not ok, more than --max-fail-ratio "
            f"{options.max_fail_ratio:g} allows"
        )
    if cell.attainment is not None and cell.attainment < options.min_attainment:
        reasons.append(
            f"{cell.attainment:.1%} of the requests met --goodput {options.goodput}, "
            f"fewer than --min-attainment {options.min_attainment:g} asks for"
        )
    if reasons:
        return MISSED, reasons
    verdict = cell.verdict
    if options.strict and verdict is not None and verdict.status == "SUSPECT":
        return SUSPECT, ["the result is SUSPECT, and --strict was given"]
    return OK, []


def total_line(cell: CellResult) -> str:
    """Rates over the whole run, whatever happened last."""
    counts = cell.counts
    text = f"total: {counts.ok} of {counts.offered} requests ok"
    if cell.makespan_s:
        text += (
            f" in {cell.makespan_s:.2f} s from the first arrival to the last token: "
            f"{cell.request_throughput_req_s or 0.0:.3f} req/s, "
            f"{cell.output_throughput_tok_s or 0.0:.1f} output tok/s"
        )
    return text


def _verdict(run: RunFile) -> list[str]:
    found = []
    for result in run.results:
        if result.verdict is not None and result.verdict.status == "SUSPECT":
            found += [f"SUSPECT: {reason}" for reason in result.verdict.reasons]
    return found


def _waits(settings: Mapping[str, JsonValue]) -> list[str]:
    text = str(settings.get("waits_for_a_user") or "")
    return [text] if text and not text.startswith("0 ") else []


def _workers(number: int) -> str:
    return f"{number} worker{'s' if number > 1 else ''}"
