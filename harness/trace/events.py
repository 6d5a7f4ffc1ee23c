"""One cell as events of the Chrome trace format: a track a request, one of steps, counters.

The format is that of "Trace Event Format" (the JSON that Chromium's tracing writes): `X` is a slice
with a duration, `i` an instant, `C` a counter, `M` a name. Times are whole microseconds, so that
slices that follow one another share their edge. A cell is a process, a request a thread.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from engines.api import StepRow
from harness.explain.spans import ended_s, spans
from harness.metrics.latency import longest_gap
from harness.records import CellRecord, RequestRecord

Event = dict[str, Any]
STEPS_TRACK: Final = 1
_FIRST_REQUEST_TRACK: Final = 2


def cell_events(cell: CellRecord, pid: int) -> Iterator[Event]:
    """`pid` tells cells apart."""
    key = cell.key
    yield _name(pid, 0, "process_name", f"{key.engine}, {key.load}, round {key.round}")
    yield _order(pid, 0, "process_sort_index", pid)
    if cell.steps:
        yield _name(pid, STEPS_TRACK, "thread_name", "steps")
        yield _order(pid, STEPS_TRACK, "thread_sort_index", STEPS_TRACK)
        for step in cell.steps:
            yield _step(step, pid)
            yield from _counters(step, pid)
    for track, request in enumerate(cell.requests, _FIRST_REQUEST_TRACK):
        if request.arrived:
            yield from _request(request, pid, track)


def _request(request: RequestRecord, pid: int, track: int) -> Iterator[Event]:
    name = f"{request.request_id} ({request.prompt_tokens} + {request.output_tokens})"
    yield _name(pid, track, "thread_name", name)
    yield _order(pid, track, "thread_sort_index", track)
    about = {"request": request.request_id, "class": request.label}
    for span in spans(request):
        start, end = _us(span.start_s), _us(span.end_s)
        yield _slice(span.kind, "request", start, end - start, pid, track, about)
    if request.first_token_s is not None:
        yield _instant("first token", request.first_token_s, pid, track, {})
    gap = longest_gap(request)
    if gap is not None:
        cause = request.stats.max_stall_cause or "unknown"
        told = {"seconds": gap.end_s - gap.start_s, "cause": cause}
        yield _instant("longest stall begins", gap.start_s, pid, track, told)
    end_s = ended_s(request)
    if request.status != "ok":
        at_s = request.scheduled_s if end_s is None else end_s
        yield _instant(request.status, at_s, pid, track, {"reason": request.reason})


def _step(step: StepRow, pid: int) -> Event:
    """Named by what it computed, so that a viewer colours the kinds apart."""
    prompts, decodes = step.prefill_tokens > 0, step.decode_tokens > 0
    name = "prefill and decode" if prompts and decodes else "prefill" if prompts else "decode"
    about = {
        "step": step.step,
        "prefill_tokens": step.prefill_tokens,
        "decode_tokens": step.decode_tokens,
        "recomputed": step.recomputed,
        "padding": step.padding,
        "useful_rows": step.useful_rows,
        "preemptions": step.preemptions,
        "schedule_ms": round(step.schedule_s * 1e3, 3),
        "compute_ms": round(step.compute_s * 1e3, 3),
    }
    start = _us(step.start_s)
    return _slice(name, "step", start, _us(step.end_s) - start, pid, STEPS_TRACK, about)


def _counters(step: StepRow, pid: int) -> Iterator[Event]:
    """What an engine does not tell has no counter."""
    yield _counter("requests", step, pid, running=step.num_running, waiting=step.num_waiting)
    if step.blocks_used is not None:
        cached = step.blocks_cached or 0
        yield _counter("KV blocks", step, pid, used=step.blocks_used, cached=cached)
    if step.tokens_held is not None and step.tokens_reserved is not None:
        empty = step.tokens_reserved - step.tokens_held
        yield _counter("KV tokens", step, pid, held=step.tokens_held, reserved_empty=empty)


def _slice(
    name: str, category: str, start: int, length: int, pid: int, tid: int, args: Mapping[str, Any]
) -> Event:
    event: Event = {"name": name, "cat": category, "ph": "X", "ts": start, "dur": max(0, length)}
    return event | {"pid": pid, "tid": tid, "args": dict(args)}


def _instant(name: str, time_s: float, pid: int, tid: int, args: Mapping[str, Any]) -> Event:
    """`"s": "t"`: a mark on its own track."""
    event: Event = {"name": name, "cat": "request", "ph": "i", "s": "t", "ts": _us(time_s)}
    return event | {"pid": pid, "tid": tid, "args": dict(args)}


def _counter(name: str, step: StepRow, pid: int, **values: int) -> Event:
    return {"name": name, "ph": "C", "ts": _us(step.start_s), "pid": pid, "tid": 0, "args": values}


def _name(pid: int, tid: int, what: str, name: str) -> Event:
    return {"name": what, "ph": "M", "pid": pid, "tid": tid, "args": {"name": name}}


def _order(pid: int, tid: int, what: str, index: int) -> Event:
    return {"name": what, "ph": "M", "pid": pid, "tid": tid, "args": {"sort_index": index}}


def _us(seconds: float) -> int:
    return round(seconds * 1e6)
