"""A request's life as spans of time, from what its record says. One definition for all who draw it.

The spans of a kind add up to the record's own sums (`queue_s`, `prefill_s`, ...). Nothing is
guessed: what an engine did not tell is one span of its own kind.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from harness.records import RequestRecord

Kind = Literal["queue", "prefill", "decode", "preempted", "until first token"]


@dataclass(frozen=True, slots=True)
class Span:
    """Seconds from t0; `start_s <= end_s`."""

    kind: Kind
    start_s: float
    end_s: float


def spans(request: RequestRecord) -> tuple[Span, ...]:
    """In order of time, without empty ones; none for a request that never arrived or began."""
    if request.stats.queue_s is None:
        return tuple(_untold(request))
    return tuple(span for span in _told(request) if span.end_s > span.start_s)


def began_s(request: RequestRecord) -> float | None:
    """The start of its first step; `None` when it had none or the engine does not tell."""
    stats = request.stats
    return None if stats.queue_s is None or not stats.num_steps else _after_queue_s(request)


def ended_s(request: RequestRecord) -> float | None:
    """When it was over for the engine: its last token, or its cancellation."""
    stats = request.stats
    if stats.queue_s is None:
        return request.end_s
    sums = (stats.prefill_s, stats.decode_s, stats.preempted_s)
    return _after_queue_s(request) + sum(seconds or 0.0 for seconds in sums)


def _told(request: RequestRecord) -> Iterator[Span]:
    began, ended = _after_queue_s(request), ended_s(request)
    assert ended is not None
    yield Span("queue", request.scheduled_s, began)
    stats = request.stats
    away = zip(stats.preempted_from_s, stats.preempted_until_s, strict=True)
    edges = [began, *(edge for pair in away for edge in pair), ended]
    for index, (start_s, end_s) in enumerate(pairwise(edges)):
        if index % 2:
            yield Span("preempted", start_s, end_s)
        else:
            yield from _at_work(request, start_s, end_s)


def _at_work(request: RequestRecord, start_s: float, end_s: float) -> Iterator[Span]:
    """Prefill becomes decode at the first token."""
    first_s = request.first_token_s
    turns_s = end_s if first_s is None else min(max(first_s, start_s), end_s)
    yield Span("prefill", start_s, turns_s)
    yield Span("decode", turns_s, end_s)


def _untold(request: RequestRecord) -> Iterator[Span]:
    first_s, end_s = request.first_token_s, request.end_s
    if first_s is None or end_s is None:
        return
    if first_s > request.scheduled_s:
        yield Span("until first token", request.scheduled_s, first_s)
    if end_s > first_s:
        yield Span("decode", first_s, end_s)


def _after_queue_s(request: RequestRecord) -> float:
    return request.scheduled_s + (request.stats.queue_s or 0.0)
