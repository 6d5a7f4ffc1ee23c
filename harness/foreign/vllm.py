"""Result files of vLLM's serving benchmark (`vllm bench serve --save-result`).

Flat JSON, in which `*_ms` are milliseconds and lists of single requests are seconds. It has no
schedule and no hash of its requests. Where a latency has no sample it writes 0; a latency of
exactly 0 is therefore unknown here. Quantiles that were not asked for are taken from the lists.
"""

from __future__ import annotations

from typing import Any, Final

from pydantic import BaseModel, ConfigDict

from harness.compare.case import Case, Source
from harness.foreign.reading import MS, Count, Number, one_round, rate_of, read_form, summaries
from harness.metrics.quantiles import summarise

TOOL: Final = "vllm bench serve"
_SAMPLES: Final = {
    "ttft": "ttft_from_send_s",
    "tpot": "tpot_s",
    "itl": "itl_s",
    "e2el": "e2e_s",
}
_LISTS: Final = {"ttfts": "ttft_from_send_s", "latencies": "e2e_s"}
_SUMMARIES: Final = {
    "mean": ("mean",),
    "p50": ("p50", "median"),
    "p95": ("p95",),
    "p99": ("p99",),
}
_RATE: Final = (
    f"{TOOL} divides by its own duration, from its start until the last answer was closed; cbbench "
    "by the time from the first scheduled arrival to the last token"
)
_DEFINITIONS: Final = {
    "request_throughput_req_s": _RATE,
    "output_throughput_tok_s": _RATE,
    "total_throughput_tok_s": _RATE,
    "goodput_req_s": _RATE,
    "itl_s": f"{TOOL} takes ITL between chunks, whatever number of tokens each has",
    "e2e_s": f"{TOOL} counts E2E from sending, cbbench from the schedule",
}


class _Result(BaseModel):
    """The keys that are used; `model_extra` has the latencies."""

    model_config = ConfigDict(extra="allow")

    duration: Number
    completed: Count
    failed: Count | None = None
    num_prompts: Count | None = None
    model_id: str | None = None
    backend: str | None = None
    request_rate: float | str | None = None
    max_concurrency: Count | None = None
    request_throughput: Number = None
    request_goodput: Number = None
    output_throughput: Number = None
    total_token_throughput: Number = None
    latencies: list[Number] | None = None
    ttfts: list[Number] | None = None


def recognised(value: object) -> bool:
    return isinstance(value, dict) and {"duration", "completed", "total_token_throughput"} <= set(
        value
    )


def read_vllm(value: object, path: str, name: str) -> Source:
    """Raises `CbbenchError` for a file that is not as vLLM writes it."""
    result = read_form(_Result, value, path, TOOL)
    rate = rate_of(result.request_rate)
    case = Case(
        engine=result.backend or "server",
        load="inf" if rate == "inf" else f"{rate:g} req/s" if rate is not None else "unknown",
        request_rate=rate,
        max_concurrency=result.max_concurrency,
        rounds=(1,),
        values=one_round([*_from_lists(result), *_rates(result), *_latencies(result, path)]),
        offered=_offered(result),
        ok=result.completed,
        definitions=_DEFINITIONS,
    )
    facts = {} if result.model_id is None else {"model": result.model_id}
    return Source(name, TOOL, None, None, (case,), facts)


def _rates(result: _Result) -> list[tuple[str, float | None]]:
    return [
        ("request_throughput_req_s", result.request_throughput),
        ("goodput_req_s", result.request_goodput),
        ("output_throughput_tok_s", result.output_throughput),
        ("total_throughput_tok_s", result.total_token_throughput),
    ]


def _latencies(result: _Result, path: str) -> list[tuple[str, float | None]]:
    """None at all when nothing was completed."""
    if not result.completed:
        return []
    return [
        item
        for theirs, ours in _SAMPLES.items()
        for item in summaries(
            ours,
            {
                summary: _first(result.model_extra or {}, prefixes, theirs, path)
                for summary, prefixes in _SUMMARIES.items()
            },
            MS,
        )
    ]


def _from_lists(result: _Result) -> list[tuple[str, float | None]]:
    """Seconds of single requests, where all of them ended well: a failure's entry is no time."""
    if result.failed != 0 or not result.completed:
        return []
    found: list[tuple[str, float | None]] = []
    for theirs, ours in _LISTS.items():
        values: list[float | None] | None = getattr(result, theirs)
        if values and len(values) == result.completed:
            sample = summarise(values)
            shown = {"p50": sample.p50, "p95": sample.p95, "p99": sample.p99, "max": sample.max}
            found += summaries(ours, shown, 1.0)
    return found


def _first(
    extra: dict[str, Any], prefixes: tuple[str, ...], sample: str, path: str
) -> float | None:
    for prefix in prefixes:
        key = f"{prefix}_{sample}_ms"
        found = read_form(dict[str, Number], {key: extra.get(key)}, path, TOOL)[key]
        if found:
            return found
    return None


def _offered(result: _Result) -> int | None:
    if result.num_prompts is not None:
        return result.num_prompts
    return None if result.failed is None else result.completed + result.failed
