"""What locust is told of a request that has ended: one event a kind, in milliseconds.

All count from the schedule, to the first or the last token, never to the headers. locust rounds
what it is told before it takes percentiles; the report's numbers come from the raw rows instead.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from engines.api import JsonValue, Request, RequestStats
from harness.locust_load.player import Row
from harness.metrics import latency
from harness.records import RequestRecord

PARTS: Final = ("TTFT", "TPOT", "LAG", "TOKENS")  # of a request that has its E2E event too


class RequestFailed(Exception):
    """The reason of a request that did not end ok, as locust groups failures by it."""


@dataclass(frozen=True, slots=True)
class LoadEvent:
    """Arguments of locust's request event."""

    kind: str
    name: str
    response_ms: float
    error: RequestFailed | None = None


def events_of(request: Request, row: Row, path: str) -> list[LoadEvent]:
    """Nothing for a request that the run's end cut off: it has neither failed nor been served."""
    record = record_of(request, row)
    if record.status == "cancelled":
        return []
    if record.status != "ok":
        failed_ms = (row.answer.ended_s - row.scheduled_s) * 1e3
        error = RequestFailed(f"{record.status}: {record.reason}")
        return [LoadEvent("E2E", path, failed_ms, error=error)]
    times = {
        "E2E": latency.e2e_s(record),
        "TTFT": latency.ttft_s(record),
        "TPOT": latency.tpot_s(record),
        "LAG": latency.lag_s(record),
    }
    found = [
        LoadEvent(kind, path, value * 1e3) for kind, value in times.items() if value is not None
    ]
    count = LoadEvent("TOKENS", f"{path} (output tokens, not ms)", record.output_tokens)
    return [*found, count]


def context_of(request: Request, row: Row) -> Mapping[str, JsonValue]:
    """For listeners of the event that want to know which request it was."""
    return {
        "request_id": request.request_id,
        "request_class": request.request_class,
        "prompt_tokens": len(request.prompt_token_ids),
        "output_tokens": sum(row.answer.counts),
    }


def record_of(request: Request, row: Row) -> RequestRecord:
    """The row as the metrics know requests."""
    answer = row.answer
    counted = [(t, n) for t, n in zip(answer.times_s, answer.counts, strict=True) if n > 0]
    return RequestRecord(
        request_id=request.request_id,
        label=request.request_class,
        session=request.session,
        prompt_tokens=len(request.prompt_token_ids),
        max_tokens=request.max_tokens,
        ignore_eos=request.ignore_eos,
        scheduled_s=row.scheduled_s,
        status=answer.status,
        finish_reason=answer.finish_reason,
        reason=answer.reason,
        stats=RequestStats(sent_s=answer.sent_s),
        token_times_s=tuple(time_s for time_s, _ in counted),
        token_counts=tuple(count for _, count in counted),
    )


def count_requests_once(stats: Any) -> None:
    """Keeps a request's parts out of locust's total.

    Otherwise its rate would be five times that of the requests, and its share of failures a fifth.
    """
    log_request = stats.log_request

    def log(method: str, name: str, response_time: float, content_length: int) -> None:
        if method in PARTS:
            stats.get(name, method).log(response_time, content_length)
        else:
            log_request(method, name, response_time, content_length)

    stats.log_request = log
