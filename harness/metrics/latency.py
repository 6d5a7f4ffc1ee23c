"""The times of one request. Seconds; `None` where a time is undefined, never 0 instead."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from harness.records.schema import RequestRecord

Samples = npt.NDArray[np.float64]


def ttft_s(request: RequestRecord) -> float | None:
    """First token after the scheduled arrival, so that an overloaded server's queue counts."""
    first_s = request.first_token_s
    return None if first_s is None else first_s - request.scheduled_s


def sent_s(request: RequestRecord) -> float:
    """When a pushing client wrote the request; for an engine that pulls, the schedule."""
    sent = request.stats.sent_s
    return request.scheduled_s if sent is None else sent


def ttft_from_send_s(request: RequestRecord) -> float | None:
    first_s = request.first_token_s
    return None if first_s is None else first_s - sent_s(request)


def lag_s(request: RequestRecord) -> float | None:
    """A pushing client's own delay; `None` for engines that pull."""
    sent = request.stats.sent_s
    return None if sent is None else sent - request.scheduled_s


def e2e_s(request: RequestRecord) -> float | None:
    """Last token after the scheduled arrival."""
    return None if request.end_s is None else request.end_s - request.scheduled_s


def tpot_s(request: RequestRecord) -> float | None:
    """(end - first token) / (n - 1); `None` for n < 2 and when all tokens came in one event."""
    if len(request.token_times_s) < 2:
        return None
    span_s = request.token_times_s[-1] - request.token_times_s[0]
    return span_s / (request.output_tokens - 1) if span_s > 0 else None


def gaps_s(request: RequestRecord) -> Samples:
    """Time between successive token events."""
    return np.diff(np.asarray(request.token_times_s, dtype=np.float64))


def itl_samples_s(request: RequestRecord) -> Samples:
    """The gap before an event of k tokens as k samples of gap / k."""
    counts = np.asarray(request.token_counts[1:], dtype=np.int64)
    return np.repeat(gaps_s(request) / np.maximum(counts, 1), counts)


@dataclass(frozen=True, slots=True)
class Gap:
    """Between token event `index` and the next one, counted from 0."""

    index: int
    start_s: float
    end_s: float


def longest_gap(request: RequestRecord) -> Gap | None:
    """The first of the longest gaps between token events."""
    gaps = gaps_s(request)
    if not gaps.size:
        return None
    index = int(gaps.argmax())
    return Gap(index, request.token_times_s[index], request.token_times_s[index + 1])


def max_stall_s(request: RequestRecord) -> float | None:
    """The largest gap between token events: what a person sees freeze."""
    gaps = gaps_s(request)
    return float(gaps.max()) if gaps.size else None
