"""What was run: the workload, every setting of every engine, the machine."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from harness.metrics import parse_goodput
from harness.metrics.results import Quantiles
from harness.results.values import EngineSummary, RunFile
from harness.show.report.words import MISSING, code, json_text, number, percent, plain

_SHOWN_ELSEWHERE: Final = (
    "workload",
    "loads",
    "engines",
    "engine_order",
    "engine_errors",
    "model_info",
    "num_warmups",
    "later_warmup_tokens",
    "output_check",
    "remarks",
)
_WORKLOAD_SHOWN_ELSEWHERE: Final = ("name", "seed", "hash", "sessions", "shared_prompt_share")


def workload_lines(run: RunFile) -> list[str]:
    """Arrivals, lengths, seed and hash."""
    workload: Mapping[str, Any] = run.settings.get("workload") or {}
    lines = [
        f"- name {code(workload.get('name', MISSING))}, seed {code(workload.get('seed', MISSING))}",
        f"- hash {code(run.workload_hash or MISSING)} (token ids, lengths, arrivals at unit rate)",
    ]
    if run.workload is not None:
        lines += [
            f"- {run.workload.requests} requests in each cell",
            f"- prompt tokens: {_lengths(run.workload.prompt_tokens)}",
            f"- output tokens asked for: {_lengths(run.workload.output_tokens)}",
            f"- classes: {code(json_text(dict(run.workload.classes)))}",
        ]
    sessions = int(workload.get("sessions") or 0)
    lines += [
        f"- load {code(load.get('name'))}: {_arrivals(load, sessions)}" for load in _loads(run)
    ]
    lines += _in_common(workload, sessions)
    lines += _listed(workload, skip=_WORKLOAD_SHOWN_ELSEWHERE)
    slos = run.settings.get("goodput")
    if slos:
        goodput = parse_goodput(str(slos))
        lines.append(f"- goodput: {goodput.describe()}")
        lines += [f"- warning: {code(text)}" for text in goodput.warnings]
    return lines


def engine_lines(run: RunFile) -> list[str]:
    """The four settings that decide first, then all of them."""
    lines = []
    for label in dict.fromkeys((*run.labels(), *run.engines)):
        engine = run.engines.get(label)
        if engine is None:
            continue
        lines += [
            f"- {code(label)}, engine {code(engine.name)}, given as {code(engine.spec)}",
            f"    - max active sequences: {code(_max_active(engine))}",
            f"    - token budget of a step: {code(_token_budget(engine))}",
            f"    - KV allocation: {code(_allocation(engine))}",
            f"    - preemption: {code(_first(engine, 'preemption', 'preempt'))}",
            f"    - context: {engine.max_model_len} tokens",
            f"    - all settings: {code(json_text(dict(engine.settings)))}",
        ]
        if engine.model:
            lines.append(f"    - model: {code(json_text(dict(engine.model)))}")
        lines += [f"    - note: {code(note)}" for note in engine.notes]
    return lines


def environment_lines(run: RunFile) -> list[str]:
    """The machine, then the run's own settings."""
    skip = _SHOWN_ELSEWHERE
    return [
        *_listed(run.environment, skip=()),
        *_warmup(run.settings),
        *(f"- run {line.removeprefix('- ')}" for line in _listed(run.settings, skip=skip)),
    ]


def _warmup(settings: Mapping[str, Any]) -> list[str]:
    """How much an engine ran before each cell; nothing where the settings do not say."""
    number, later = settings.get("num_warmups"), settings.get("later_warmup_tokens")
    if number is None:
        return []
    if not number:
        return ["- warm-up: none"]
    requests = f"{number} request{'s' if number > 1 else ''}"
    text = f"- warm-up before each cell: {requests} with prompts of their own"
    if later is None:
        return [text]
    cut = f"answers cut to {later} tokens before its later ones"
    return [f"{text}, whole before an engine's first cell, {cut}"]


def _loads(run: RunFile) -> list[Mapping[str, Any]]:
    return list(run.settings.get("loads") or ())


def _in_common(workload: Mapping[str, Any], sessions: int) -> list[str]:
    """Sessions, and how much of the prompts a prefix cache may find."""
    lines = [f"- {sessions} sessions, each request a turn of one"] if sessions else []
    share = workload.get("shared_prompt_share")
    if share:
        lines.append(
            f"- {percent(share)} of prompt tokens begin another prompt too: what a prefix cache "
            "that was empty at first may find"
        )
    return lines


def _arrivals(load: Mapping[str, Any], sessions: int) -> str:
    """What the load means, in words."""
    request_rate, cap = load.get("request_rate"), load.get("max_concurrency")
    if request_rate in ("inf", None):
        if sessions:
            begin = "all sessions begin at t0" if cap is None else f"{cap} sessions at a time"
            return f"{begin}, a turn comes when the one before it has ended (request rate inf)"
        if cap is None:
            return "all requests at t0 (request rate inf)"
        return f"closed loop, {cap} at a time (request rate inf)"
    text = f"open loop at {number(float(request_rate))} requests per second"
    return text + (f", at most {cap} at a time" if cap is not None else "")


def _lengths(sample: Quantiles) -> str:
    if not sample.n:
        return MISSING
    parts = [
        f"{name} {number(value)}"
        for name, value in (
            ("mean", sample.mean),
            ("std", sample.std),
            ("p50", sample.p50),
            ("p95", sample.p95),
            ("p99", sample.p99),
            ("max", sample.max),
        )
    ]
    return ", ".join(parts)


def _listed(values: Mapping[str, Any], skip: Iterable[str]) -> list[str]:
    return [
        f"- {key.replace('_', ' ')}: {code(json_text(value))}"
        for key, value in values.items()
        if key not in skip
    ]


def _first(engine: EngineSummary, *names: str) -> str:
    """The first of these settings that the engine has."""
    for name in names:
        if name in engine.settings:
            return json_text(engine.settings[name])
    return MISSING


def _token_budget(engine: EngineSummary) -> str:
    """Policies without the setting run whole prompts in a step."""
    if "policy" in engine.settings and "max_num_batched_tokens" not in engine.settings:
        return f"none (policy {plain(engine.settings['policy'])})"
    return json_text(engine.settings.get("max_num_batched_tokens"))


def _max_active(engine: EngineSummary) -> str:
    for name in ("max_num_seqs", "max_batch_size"):
        if name in engine.settings:
            return json_text(engine.settings[name])
    return MISSING if engine.slots is None else str(engine.slots)


def _allocation(engine: EngineSummary) -> str:
    """How memory is given out, and how much there is."""
    kind = engine.settings.get("allocator")
    if kind is None and "block_size" in engine.settings:
        kind = "paged"
    if engine.settings.get("reserve") is not None:
        kind = f"{kind} (reserve={engine.settings['reserve']})"
    size = "" if engine.kv_tokens is None else f"{engine.kv_tokens} tokens"
    if "block_size" in engine.settings:
        size += f" in blocks of {engine.settings['block_size']}"
    return ", ".join(filter(None, (json_text(kind) if kind else "", size.strip()))) or MISSING
