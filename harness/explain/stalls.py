"""The worst stalls of a run, and what went on while they lasted.

A stall is the longest gap between two token events of a request; requests that stood still from the
same instant to the same instant, for the same cause, share one. The cause is the engine's own word.
"""

from __future__ import annotations

import heapq
import statistics
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from engines.api import StallCause, StepRow
from harness.explain.spans import spans
from harness.metrics.latency import longest_gap
from harness.records import CellRecord, RequestRecord

MOST: Final = 10
SAME_INSTANT_S: Final = 1e-6  # sums of durations miss an instant by less


@dataclass(frozen=True, slots=True)
class Stall:
    """`requests` all had their longest gap here. `cause` of `None`: the engine does not tell."""

    cell: CellRecord
    requests: tuple[RequestRecord, ...]
    start_s: float
    end_s: float
    cause: StallCause | None

    @property
    def length_s(self) -> float:
        return self.end_s - self.start_s


@dataclass(frozen=True, slots=True)
class Meanwhile:
    """What a cell's own rows say of a stretch of time; all zero without step rows.

    `most_prompt_tokens` is the most in one step; `recomputed` of all prompt tokens were computed
    again after a preemption. `rows` is the most requests with work in one step, `running` the most
    that were resident, `running_before` those in the step before.
    `prompts` are the other requests whose prompt was computed meanwhile, largest first.
    `slowness` is the longest step over the median of steps without prompts; `None` when a prompt
    was in it, or there is nothing to compare it with.
    """

    steps: int = 0
    prompt_tokens: int = 0
    most_prompt_tokens: int = 0
    recomputed: int = 0
    padding: int = 0
    preemptions: int = 0
    rows: int = 0
    running: int = 0
    running_before: int = 0
    waiting: int = 0
    prompts: tuple[RequestRecord, ...] = ()
    slowness: float | None = None


def worst_stalls(cells: Sequence[CellRecord], most: int = MOST) -> list[Stall]:
    """The longest first."""
    found = (stall for cell in cells for stall in _stalls(cell))
    return heapq.nlargest(most, found, key=lambda stall: (stall.length_s, len(stall.requests)))


def causes(cells: Sequence[CellRecord]) -> Counter[str]:
    """How many requests' longest stalls had which cause."""
    return Counter(
        request.stats.max_stall_cause or "not told"
        for cell in cells
        for request in cell.requests
        if longest_gap(request) is not None
    )


def meanwhile(
    cell: CellRecord, start_s: float, end_s: float, but: Sequence[RequestRecord] = ()
) -> Meanwhile:
    """Between two instants: the steps whose middle lies there, and all prompts but those of `but`.

    A step's own end is no border: it goes on a little after its tokens are delivered.
    """
    steps = [row for row in cell.steps if start_s < (row.start_s + row.end_s) / 2 < end_s]
    left_out = {request.request_id for request in but}
    prompts = [
        request
        for request in cell.requests
        if request.request_id not in left_out and _computes_its_prompt(request, start_s, end_s)
    ]
    return Meanwhile(
        steps=len(steps),
        prompt_tokens=sum(row.prefill_tokens for row in steps),
        most_prompt_tokens=max((row.prefill_tokens for row in steps), default=0),
        recomputed=sum(row.recomputed for row in steps),
        padding=sum(row.padding for row in steps),
        preemptions=sum(row.preemptions for row in steps),
        rows=max((row.useful_rows for row in steps), default=0),
        running=max((row.num_running for row in steps), default=0),
        running_before=_running_before(cell, start_s),
        waiting=max((row.num_waiting for row in steps), default=0),
        prompts=tuple(sorted(prompts, key=lambda request: -request.prompt_tokens)),
        slowness=_slowness(cell, steps),
    )


def step_at(steps: Sequence[StepRow], at_s: float) -> StepRow | None:
    """The step that starts at that instant."""
    place = bisect_left(steps, at_s - SAME_INSTANT_S, key=lambda row: row.start_s)
    if place < len(steps) and steps[place].start_s <= at_s + SAME_INSTANT_S:
        return steps[place]
    return None


def step_before(steps: Sequence[StepRow], at_s: float) -> StepRow | None:
    """The last that starts before that instant."""
    place = bisect_left(steps, at_s - SAME_INSTANT_S, key=lambda row: row.start_s)
    return steps[place - 1] if place else None


def _stalls(cell: CellRecord) -> Iterator[Stall]:
    together: dict[tuple[float, float, StallCause | None], list[RequestRecord]] = defaultdict(list)
    for request in cell.requests:
        gap = longest_gap(request)
        if gap is not None:
            together[gap.start_s, gap.end_s, request.stats.max_stall_cause].append(request)
    for (start_s, end_s, cause), requests in together.items():
        yield Stall(cell, tuple(requests), start_s, end_s, cause)


def _computes_its_prompt(request: RequestRecord, start_s: float, end_s: float) -> bool:
    return any(
        span.kind == "prefill" and span.end_s > start_s and span.start_s < end_s
        for span in spans(request)
    )


def _running_before(cell: CellRecord, time_s: float) -> int:
    before = (row for row in reversed(cell.steps) if (row.start_s + row.end_s) / 2 < time_s)
    last = next(before, None)
    return 0 if last is None else last.num_running


def _slowness(cell: CellRecord, steps: Sequence[StepRow]) -> float | None:
    longest = max(steps, key=_seconds, default=None)
    plain = [_seconds(row) for row in cell.steps if not row.prefill_tokens]
    if longest is None or longest.prefill_tokens or not plain:
        return None
    usual_s = statistics.median(plain)
    return _seconds(longest) / usual_s if usual_s > 0 else None


def _seconds(row: StepRow) -> float:
    return row.end_s - row.start_s
