"""One cell's record becomes one object of run.json's `results`."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Final

import numpy as np

from harness.metrics import latency, rates, remote, scheduler
from harness.metrics.classes import request_classes
from harness.metrics.goodput import Goodput, judge
from harness.metrics.quantiles import summarise, with_failures
from harness.metrics.results import (
    CellResult,
    Counts,
    FailureQuantiles,
    GroupResult,
    Quantiles,
)
from harness.records.schema import CellRecord, RequestRecord

_FAILURES_SHOWN_ABOVE: Final = 0.01
_Measure = Callable[[RequestRecord], float | None]
_FAILABLE: Final[Mapping[str, _Measure]] = {
    "ttft_s": latency.ttft_s,
    "tpot_s": latency.tpot_s,
    "e2e_s": latency.e2e_s,
    "max_stall_s": latency.max_stall_s,
}


def summarise_cell(record: CellRecord, goodput: Goodput) -> CellResult:
    """All metrics of a cell. The verdict is left open: it needs the other rounds too."""
    span_s = rates.makespan_s(record.requests)
    whole = _summarise_group(record, record.requests, goodput, span_s)
    if whole.preemptions is None:
        whole = replace(whole, preemptions=remote.server_preemptions(record))
    trailer = record.trailer
    server = remote.server_side(record)
    hit_share = scheduler.prefix_hit_share(record.requests)
    return CellResult(
        **{field.name: getattr(whole, field.name) for field in fields(GroupResult)},
        engine=record.key.engine,
        spec=record.spec,
        load=record.key.load,
        round=record.key.round,
        verdict=None,
        makespan_s=span_s,
        load_kind=rates.load_kind(record),
        kept_up=rates.kept_up(record),
        interrupted=record.interrupted,
        broken=record.broken,
        ledger=scheduler.ledger(record),
        slot_utilisation=scheduler.slot_utilisation(record.steps),
        kv_utilisation=scheduler.kv_utilisation(record.steps),
        kv_pool_used=scheduler.kv_pool_used(record),
        scheduling=scheduler.scheduling(record.steps, _token_budget(record)),
        kv_loss=scheduler.kv_loss(record),
        residents=scheduler.residents(record.steps),
        steps=len(record.steps) or None,
        steady_window=rates.steady_window(record),
        prefix_hit_share=server.prefix_hit_share if hit_share is None and server else hit_share,
        gc_pauses=trailer.gc_pauses if trailer else None,
        gc_pause_s=trailer.gc_pause_s if trailer else None,
        classes=_summarise_classes(record, goodput, span_s),
        client=remote.client_side(record),
        server=server,
    )


def _token_budget(record: CellRecord) -> int | None:
    budget = record.info.settings.get("max_num_batched_tokens")
    return budget if isinstance(budget, int) else None


def _summarise_classes(
    record: CellRecord, goodput: Goodput, span_s: float | None
) -> dict[str, GroupResult]:
    members: dict[str, list[RequestRecord]] = defaultdict(list)
    for name, request in zip(request_classes(record.requests), record.requests, strict=True):
        members[name].append(request)
    return {
        name: _summarise_group(record, requests, goodput, span_s)
        for name, requests in sorted(members.items())
    }


def _summarise_group(
    record: CellRecord, requests: Sequence[RequestRecord], goodput: Goodput, span_s: float | None
) -> GroupResult:
    """Of all the record's `requests`, or of those of one class."""
    ok = [request for request in requests if request.status == "ok"]
    prompt_tokens = sum(request.prompt_tokens for request in ok)
    output_tokens = sum(request.output_tokens for request in ok)
    model = record.info.model
    attained = judge(requests, goodput, record.end_s) if goodput.slos else None
    return GroupResult(
        counts=_count(requests),
        request_throughput_req_s=rates.rate(len(ok), span_s),
        output_throughput_tok_s=rates.rate(output_tokens, span_s),
        total_throughput_tok_s=rates.rate(prompt_tokens + output_tokens, span_s),
        goodput_req_s=rates.rate(attained.good, span_s) if attained else None,
        attainment=attained.good / attained.judged if attained and attained.judged else None,
        goodput_excluded=attained.excluded if attained else None,
        ttft_s=summarise(map(latency.ttft_s, ok)),
        ttft_from_send_s=summarise(map(latency.ttft_from_send_s, ok)),
        tpot_s=summarise(map(latency.tpot_s, ok)),
        itl_s=_pooled_itl(ok),
        e2e_s=summarise(map(latency.e2e_s, ok)),
        queue_s=_where_known([request.stats.queue_s for request in ok]),
        max_stall_s=summarise(map(latency.max_stall_s, ok)),
        lag_s=_where_known([latency.lag_s(request) for request in ok]),
        preemptions=scheduler.preemptions(requests, model.kv_bytes_per_token if model else None),
        prompt_tokens=summarise(request.prompt_tokens for request in ok),
        output_tokens=summarise(request.output_tokens for request in ok),
        reasons=_reasons(requests),
        with_failures=_with_failures(ok, len(requests) - len(ok)),
    )


def _count(requests: Sequence[RequestRecord]) -> Counts:
    by_status = Counter(request.status for request in requests)
    return Counts(
        offered=len(requests),
        ok=by_status["ok"],
        rejected=by_status["rejected"],
        failed=by_status["failed"],
        timeout=by_status["timeout"],
        cancelled=by_status["cancelled"],
    )


def _pooled_itl(ok: Sequence[RequestRecord]) -> Quantiles:
    """Gaps of all requests in one sample; `undefined` counts the requests that have none."""
    samples = [latency.itl_samples_s(request) for request in ok]
    without = sum(not sample.size for sample in samples)
    pooled = np.concatenate(samples) if samples else np.empty(0)
    return summarise(pooled, undefined=without)


def _where_known(values: Sequence[float | None]) -> Quantiles | None:
    """`None` when the engine knows it of no request."""
    return summarise(values) if any(value is not None for value in values) else None


def _reasons(requests: Sequence[RequestRecord]) -> dict[str, dict[str, int]]:
    """By status, how often each reason was given; the most frequent first."""
    grouped: dict[str, Counter[str]] = defaultdict(Counter)
    for request in requests:
        if request.status != "ok":
            grouped[request.status][request.reason or "no reason given"] += 1
    return {status: dict(reasons.most_common()) for status, reasons in sorted(grouped.items())}


def _with_failures(
    ok: Sequence[RequestRecord], failures: int
) -> dict[str, FailureQuantiles] | None:
    if failures <= _FAILURES_SHOWN_ABOVE * (len(ok) + failures):
        return None
    return {
        name: with_failures([v for v in map(measure, ok) if v is not None], failures)
        for name, measure in _FAILABLE.items()
    }
