"""Work over time: the makespan, the steady window, and whether an engine kept up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from harness.metrics.latency import e2e_s, ttft_s
from harness.metrics.results import LoadKind, SteadyWindow
from harness.records.schema import CellRecord, RequestRecord

_STEADY_FROM: Final = 0.1
_STEADY_TO: Final = 0.9
_KEPT_UP: Final = 0.9
_FEWEST_TO_TELL: Final = 5


def makespan_s(requests: Sequence[RequestRecord]) -> float | None:
    """From the first scheduled arrival to the last token of any request; `None` without one."""
    ends_s = [request.end_s for request in requests if request.end_s is not None]
    return max(ends_s) - min(request.scheduled_s for request in requests) if ends_s else None


def rate(amount: int, span_s: float | None) -> float | None:
    """Per second: 0 when nothing was done, `None` when the time is not known to have passed."""
    if amount == 0:
        return 0.0
    return amount / span_s if span_s else None


def load_kind(record: CellRecord) -> LoadKind:
    if record.closed_loop:
        return "closed"
    instants = {request.scheduled_s for request in record.requests}
    return "open" if len(instants) > 1 else "at_once"


def steady_window(record: CellRecord) -> SteadyWindow | None:
    """Open loop: the middle 80% of the schedule. Else until the queue is empty."""
    if not record.requests:
        return None
    arrivals_s = [request.scheduled_s for request in record.requests]
    first_s, last_s = min(arrivals_s), max(arrivals_s)
    kind = load_kind(record)
    if kind == "open":
        start_s = first_s + _STEADY_FROM * (last_s - first_s)
        end_s = first_s + _STEADY_TO * (last_s - first_s)
    else:
        start_s = first_s
        end_s = last_s if kind == "closed" else _queue_empty_s(record.requests, first_s)
    if end_s <= start_s:
        return None
    return SteadyWindow(start_s, end_s, _tokens_in(record, start_s, end_s) / (end_s - start_s))


def kept_up(record: CellRecord) -> bool | None:
    """Under open-loop load: whether the work ended soon after the arrivals did.

    A drain that even an unloaded engine may need is no sign of a queue: the shortest TTFT and the
    longest time from a first to a last token. `None` for other loads and for too few requests.
    """
    ok = [request for request in record.requests if request.status == "ok"]
    span_s = makespan_s(record.requests)
    if load_kind(record) != "open" or len(ok) < _FEWEST_TO_TELL or not span_s:
        return None
    if len(ok) < _KEPT_UP * len(record.requests):
        return False
    arrivals_s = [request.scheduled_s for request in record.requests]
    waits_s = [ttft_s(request) or 0.0 for request in ok]
    answers_s = [(e2e_s(r) or 0.0) - wait_s for r, wait_s in zip(ok, waits_s, strict=True)]
    drain_s = min(waits_s) + max(answers_s)
    return (max(arrivals_s) - min(arrivals_s) + drain_s) / span_s >= _KEPT_UP


def _queue_empty_s(requests: Sequence[RequestRecord], first_s: float) -> float:
    """When the last request was first planned; its first token where planning is unknown."""
    instants_s = [first_s]
    for request in requests:
        if request.stats.queue_s is not None:
            instants_s.append(request.scheduled_s + request.stats.queue_s)
        elif request.first_token_s is not None:
            instants_s.append(request.first_token_s)
    return max(instants_s)


def _tokens_in(record: CellRecord, start_s: float, end_s: float) -> int:
    return sum(
        count
        for request in record.requests
        if request.status == "ok"
        for time_s, count in zip(request.token_times_s, request.token_counts, strict=True)
        if start_s < time_s <= end_s
    )
