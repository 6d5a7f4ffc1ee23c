"""Result files of aiperf (`profile_export_aiperf.json`): a metric has a unit and its summaries.

The unit is the file's own word; a metric in a unit that is not known here is unknown, and said.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pydantic import BaseModel, ConfigDict

from harness.compare.case import Case, Source
from harness.foreign.reading import Number, one_round, rate_of, read_form, summaries

TOOL: Final = "aiperf"
_SECONDS: Final = {"sec": 1.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
_RATE_UNITS: Final = {"requests/sec": 1.0, "tokens/sec": 1.0}
_SUMMARIES: Final = {"mean": "avg", "p50": "p50", "p95": "p95", "p99": "p99", "max": "max"}
_RATES: Final = {
    "request_throughput": "request_throughput_req_s",
    "goodput": "goodput_req_s",
    "output_token_throughput": "output_throughput_tok_s",
    "total_token_throughput": "total_throughput_tok_s",
}
_SAMPLES: Final = {
    "time_to_first_token": "ttft_from_send_s",
    "inter_token_latency": "tpot_s",
    "inter_chunk_latency": "itl_s",
    "credit_to_start_latency": "lag_s",
}
_FROM_DUE: Final = "effective_latency"  # from when a request was due, not from when it was sent
_FROM_SEND: Final = "request_latency"
_RATE: Final = (
    f"{TOOL} divides by its benchmark's duration and counts tokens with its own tokenizer"
)
_DEFINITIONS: Final = {
    "request_throughput_req_s": _RATE,
    "output_throughput_tok_s": _RATE,
    "total_throughput_tok_s": _RATE,
    "goodput_req_s": _RATE,
    "itl_s": f"{TOOL} takes ITL between chunks, whatever number of tokens each has",
}
_E2E: Final = {
    _FROM_DUE: f"{TOOL} counts E2E from when a request's turn came, cbbench from the schedule",
    _FROM_SEND: f"{TOOL} counts E2E from sending, cbbench from the schedule",
}


class _Metric(BaseModel):
    model_config = ConfigDict(extra="ignore")

    unit: str
    avg: Number = None
    p50: Number = None
    p95: Number = None
    p99: Number = None
    max: Number = None


def recognised(value: object) -> bool:
    return isinstance(value, dict) and "aiperf_version" in value


def read_aiperf(value: object, path: str, name: str) -> Source:
    """Raises `CbbenchError` for a file that is not as aiperf writes it."""
    plain = read_form(dict[str, Any], value, path, TOOL)
    used = (*_RATES, *_SAMPLES, _FROM_DUE, _FROM_SEND, "request_count", "completed_request_count")
    given = {key: plain[key] for key in used if plain.get(key) is not None}
    metrics = read_form(dict[str, _Metric], given, path, TOOL)
    e2e = _FROM_DUE if _FROM_DUE in metrics else _FROM_SEND
    load, rate, concurrency = _load(plain)
    case = Case(
        engine="server",
        load=load,
        request_rate=rate_of(rate),
        max_concurrency=concurrency,
        rounds=(1,),
        values=one_round(_values(metrics, _SAMPLES | {e2e: "e2e_s"})),
        offered=_count(metrics.get("completed_request_count") or metrics.get("request_count")),
        ok=_count(metrics.get("request_count")),
        definitions=_DEFINITIONS | {"e2e_s": _E2E[e2e]},
        notes=(*_unknown_units(metrics), *_cut_short(plain)),
    )
    model = _model(plain)
    return Source(name, TOOL, None, None, (case,), {} if model is None else {"model": model})


def _values(
    metrics: Mapping[str, _Metric], samples: Mapping[str, str]
) -> list[tuple[str, float | None]]:
    found: list[tuple[str, float | None]] = []
    for theirs, metric in metrics.items():
        if theirs in _RATES and metric.unit in _RATE_UNITS:
            found.append((_RATES[theirs], metric.avg))
        elif theirs in samples and metric.unit in _SECONDS:
            by_name = {ours: getattr(metric, key) for ours, key in _SUMMARIES.items()}
            found += summaries(samples[theirs], by_name, _SECONDS[metric.unit])
    return found


def _unknown_units(metrics: Mapping[str, _Metric]) -> list[str]:
    notes = []
    for name, metric in metrics.items():
        known = _RATE_UNITS if name in _RATES else _SECONDS
        if metric.unit not in known and not name.endswith("count"):
            notes.append(f"{name} is in {metric.unit!r}, a unit that is not known, and left out")
    return notes


def _cut_short(plain: Mapping[str, Any]) -> list[str]:
    return ["it was cancelled before its end"] if plain.get("was_cancelled") is True else []


def _count(metric: _Metric | None) -> int | None:
    return None if metric is None or metric.avg is None else round(metric.avg)


def _load(plain: Mapping[str, Any]) -> tuple[str, float | None, int | None]:
    """Name, rate and cap of the last phase, where the file's own settings are as expected."""
    settings = plain.get("input_config")
    phases = settings.get("phases") if isinstance(settings, dict) else None
    phase = phases[-1] if isinstance(phases, list) and phases else None
    if not isinstance(phase, dict):
        return "unknown", None, None
    rate, cap = phase.get("rate"), phase.get("concurrency")
    known = float(rate) if isinstance(rate, int | float) else None
    name = str(phase.get("type", "unknown")) + ("" if known is None else f" {known:g} req/s")
    return name, known, cap if isinstance(cap, int) else None


def _model(plain: Mapping[str, Any]) -> str | None:
    try:
        name = plain["input_config"]["models"]["items"][0]["name"]
    except (KeyError, IndexError, TypeError):
        return None
    return name if isinstance(name, str) else None
