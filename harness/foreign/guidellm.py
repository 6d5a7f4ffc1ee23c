"""Result files of guidellm (JSON): `*_ms` are milliseconds, `request_latency` and delays seconds.

A file holds a benchmark for each rate, and each becomes a case. What it calls time per output token
counts the first token too; its inter-token latency is what TPOT is here.
"""

from __future__ import annotations

from typing import Any, Final

from pydantic import BaseModel, ConfigDict, Field

from harness.compare.case import Case, Source
from harness.foreign.reading import MS, Count, Number, one_round, rate_of, read_form, summaries

TOOL: Final = "guidellm"
_RATE: Final = f"{TOOL} divides by the time from the first request's start to the last one's end"
_E2E: Final = f"{TOOL} ends a request when its answer is closed, cbbench with its last token"
_DEFINITIONS: Final = {
    "request_throughput_req_s": _RATE,
    "output_throughput_tok_s": _RATE,
    "total_throughput_tok_s": _RATE,
    "tpot_s": f"{TOOL} counts a request's mean gap once a token, cbbench once a request",
    "e2e_s": _E2E,
}
_E2E_FROM_SEND: Final = f"{_E2E}; and it is counted from sending, not from the schedule"


class _Sample(BaseModel):
    model_config = ConfigDict(extra="ignore")

    mean: Number = None
    median: Number = None
    max: Number = None
    count: Count | None = None
    percentiles: dict[str, Number] = Field(default_factory=dict)


class _ByOutcome(BaseModel):
    model_config = ConfigDict(extra="ignore")

    successful: _Sample | None = None


class _Totals(BaseModel):
    model_config = ConfigDict(extra="ignore")

    successful: Count
    errored: Count = 0
    incomplete: Count = 0


class _Metrics(BaseModel):
    """`request_scheduled_latency` counts from the schedule; older versions have none."""

    model_config = ConfigDict(extra="ignore")

    request_totals: _Totals
    requests_per_second: _ByOutcome = _ByOutcome()
    output_tokens_per_second: _ByOutcome = _ByOutcome()
    tokens_per_second: _ByOutcome = _ByOutcome()
    request_latency: _ByOutcome = _ByOutcome()
    request_scheduled_latency: _ByOutcome | None = None
    request_dispatch_delay: _ByOutcome = _ByOutcome()
    time_to_first_token_ms: _ByOutcome = _ByOutcome()
    inter_token_latency_ms: _ByOutcome = _ByOutcome()


class _Strategy(BaseModel):
    model_config = ConfigDict(extra="ignore")

    type_: str = "unknown"
    rate: float | None = None
    streams: Count | None = None


class _Config(BaseModel):
    model_config = ConfigDict(extra="ignore")

    strategy: _Strategy = _Strategy()
    backend: dict[str, Any] = Field(default_factory=dict)


class _State(BaseModel):
    model_config = ConfigDict(extra="ignore")

    created_requests: Count | None = None


class _Benchmark(BaseModel):
    model_config = ConfigDict(extra="ignore")

    config: _Config = _Config()
    scheduler_state: _State = _State()
    metrics: _Metrics


class _File(BaseModel):
    model_config = ConfigDict(extra="ignore")

    benchmarks: list[_Benchmark] = Field(min_length=1)


def recognised(value: object) -> bool:
    metadata = value.get("metadata") if isinstance(value, dict) else None
    return isinstance(metadata, dict) and "guidellm_version" in metadata


def read_guidellm(value: object, path: str, name: str) -> Source:
    """Raises `CbbenchError` for a file that is not as guidellm writes it."""
    file = read_form(_File, value, path, TOOL)
    model = file.benchmarks[0].config.backend.get("model")
    facts = {"model": model} if isinstance(model, str) else {}
    return Source(name, TOOL, None, None, tuple(map(_case, file.benchmarks)), facts)


def _case(benchmark: _Benchmark) -> Case:
    strategy, totals = benchmark.config.strategy, benchmark.metrics.request_totals
    told = totals.successful + totals.errored + totals.incomplete
    offered = max(told, benchmark.scheduler_state.created_requests or 0)
    scheduled = benchmark.metrics.request_scheduled_latency is not None
    return Case(
        engine="server",
        load=strategy.type_ + ("" if strategy.rate is None else f" {strategy.rate:g} req/s"),
        request_rate=rate_of(strategy.rate),
        max_concurrency=strategy.streams,
        rounds=(1,),
        values=one_round(_values(benchmark.metrics)),
        offered=offered,
        ok=totals.successful,
        definitions=_DEFINITIONS | ({} if scheduled else {"e2e_s": _E2E_FROM_SEND}),
        notes=_unaccounted(offered - told, offered),
    )


def _values(metrics: _Metrics) -> list[tuple[str, float | None]]:
    e2e = metrics.request_scheduled_latency or metrics.request_latency
    return [
        ("request_throughput_req_s", _mean(metrics.requests_per_second)),
        ("output_throughput_tok_s", _mean(metrics.output_tokens_per_second)),
        ("total_throughput_tok_s", _mean(metrics.tokens_per_second)),
        *summaries("ttft_from_send_s", _sample(metrics.time_to_first_token_ms), MS),
        *summaries("tpot_s", _sample(metrics.inter_token_latency_ms), MS),
        *summaries("e2e_s", _sample(e2e), 1.0),
        *summaries("lag_s", _sample(metrics.request_dispatch_delay), 1.0),
    ]


def _mean(metric: _ByOutcome) -> float | None:
    return metric.successful.mean if metric.successful else None


def _sample(metric: _ByOutcome) -> dict[str, float | None]:
    """Empty where nothing was measured, which guidellm writes as zeros."""
    sample = metric.successful
    if sample is None or not sample.count:
        return {}
    return {
        "mean": sample.mean,
        "p50": sample.percentiles.get("p50", sample.median),
        "p95": sample.percentiles.get("p95"),
        "p99": sample.percentiles.get("p99"),
        "max": sample.max,
    }


def _unaccounted(number: int, offered: int) -> tuple[str, ...]:
    if not number:
        return ()
    return (f"{number} of {offered} requests that it made are in none of its counts",)
