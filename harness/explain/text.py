"""The worst stalls in words. Pure: from values to lines."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from engines.api import StallCause
from harness.explain.advice import Advice, shorter_stall, sooner_start
from harness.explain.spans import began_s
from harness.explain.stalls import Meanwhile, Stall, causes, meanwhile, worst_stalls
from harness.metrics.latency import longest_gap, ttft_s
from harness.records import CellRecord, RequestRecord
from harness.show.report.words import json_text, plain
from harness.show.text import counted

_MOST_NAMES: Final = 3
_ORDINALS: Final = {1: "st", 2: "nd", 3: "rd"}


def stall_lines(cells: Sequence[CellRecord]) -> list[str]:
    """All that `explain` says of a run."""
    worst = worst_stalls(cells)
    if not worst:
        return ["nobody stood still: no request had two token events"]
    lines = ["longest stalls of requests by cause: " + _by_cause(cells), ""]
    lines.append("the worst stalls (one that several requests shared counts once):")
    for number, stall in enumerate(worst, 1):
        lines += ["", *_stall(number, stall)]
    return [*lines, "", *longest_wait_lines(cells)]


def advice_lines(advice: Iterable[Advice]) -> list[str]:
    """A line each."""
    return [f"    {_change(item)}" for item in advice]


def cause_words(cause: StallCause | None, seen: Meanwhile) -> str:
    """What went on, in a clause."""
    match cause:
        case "preemption":
            back = "computed again what was lost" if seen.recomputed else "came back with its cache"
            return f"preempted, and {back} ({_counts(seen)})"
        case "prefill":
            return f"others' prompts ran: {_prompts(seen)}"
        case "token_budget":
            return f"left out of steps that had no token for it ({_counts(seen)})"
        case "compute":
            return f"computing itself ({_counts(seen)}, {counted(seen.rows, 'row')} at once)"
        case None:
            return "the engine does not tell"


def longest_wait_lines(cells: Sequence[CellRecord]) -> list[str]:
    """The request that waited longest for its first token, and what would have helped."""
    waited = [
        (wait_s, cell, request)
        for cell in cells
        for request in cell.requests
        if (wait_s := ttft_s(request)) is not None
    ]
    if not waited:
        return []
    wait_s, cell, request = max(waited, key=lambda found: found[0])
    line = f"the longest wait for a first token: {seconds(wait_s)}, {_place(cell, request)}"
    began = began_s(request)
    if began is None:
        return [line]
    queue_s = began - request.scheduled_s
    lines = [f"{line}; {seconds(queue_s)} of it in the queue"]
    if queue_s > wait_s / 2:
        seen = meanwhile(cell, request.scheduled_s, began, [request])
        lines += advice_lines(sooner_start(cell, seen))
    return lines


def names(requests: Sequence[RequestRecord], most: int = _MOST_NAMES) -> str:
    """`r1, r2 and 5 more`."""
    shown = ", ".join(plain(request.request_id) for request in requests[:most])
    return f"{shown} and {len(requests) - most} more" if len(requests) > most else shown


def seconds(value: float) -> str:
    return f"{value:.3f} s"


def ordinal(number: int) -> str:
    teens = 10 < number % 100 < 20
    return f"{number}{'th' if teens else _ORDINALS.get(number % 10, 'th')}"


def _stall(number: int, stall: Stall) -> list[str]:
    seen = meanwhile(stall.cell, stall.start_s, stall.end_s, stall.requests)
    gap = longest_gap(stall.requests[0])
    after = f", after its {ordinal(gap.index + 1)} token event" if gap is not None else ""
    who = names(stall.requests)
    alone = len(stall.requests) == 1
    key = stall.cell.key
    return [
        f"{number:>2}. {seconds(stall.length_s)} from {seconds(stall.start_s)}: "
        f"{who}{after if alone else ''}, in {plain(key.engine)}, {plain(key.load)}, "
        f"round {key.round}",
        f"    cause {stall.cause or 'not told'}: {cause_words(stall.cause, seen)}",
        *advice_lines(shorter_stall(stall, seen)),
    ]


def _change(advice: Advice) -> str:
    if advice.engine:
        return f"shorter with the engine {advice.engine}: {advice.why}"
    if advice.settings is None:
        return advice.why
    change = ",".join(f"{name}={json_text(value)}" for name, value in advice.settings.items())
    return f"shorter with {change}: {advice.why}"


def _by_cause(cells: Sequence[CellRecord]) -> str:
    return ", ".join(f"{cause} {number}" for cause, number in causes(cells).most_common())


def _counts(seen: Meanwhile) -> str:
    more = f", {counted(seen.preemptions, 'preemption')}" if seen.preemptions else ""
    prompts = f", {counted(seen.prompt_tokens, 'prompt token')}" if seen.prompt_tokens else ""
    padding = f", {counted(seen.padding, 'padding position')}" if seen.padding else ""
    return f"{counted(seen.steps, 'step')}{prompts}{padding}{more}"


def _prompts(seen: Meanwhile) -> str:
    whose = f" of {names(seen.prompts)}" if seen.prompts else ""
    again = f", {seen.recomputed} of them again after preemptions" if seen.recomputed else ""
    return f"{counted(seen.prompt_tokens, 'token')}{whose} in {counted(seen.steps, 'step')}{again}"


def _place(cell: CellRecord, request: RequestRecord) -> str:
    key = cell.key
    return (
        f"{plain(request.request_id)} in {plain(key.engine)}, {plain(key.load)}, round {key.round}"
    )
