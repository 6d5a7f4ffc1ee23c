"""One request's story in words: when it came, behind whom it waited, and what became of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from engines.api import CbbenchError, StepRow
from harness.explain.advice import shorter_stall
from harness.explain.spans import began_s, ended_s, spans
from harness.explain.stalls import Stall, meanwhile, step_at, step_before
from harness.explain.text import advice_lines, cause_words, names, ordinal, seconds
from harness.metrics.latency import e2e_s, gaps_s, longest_gap, ttft_s
from harness.records import CellRecord, RequestRecord
from harness.show.report.words import plain
from harness.show.text import counted


def story_lines(cells: Sequence[CellRecord], request_id: str) -> list[str]:
    """Of the request of that name, once for each engine, in the first of its cells.

    Raises `CbbenchError` when no cell has such a request.
    """
    lines: list[str] = []
    told: set[str] = set()
    others = 0
    for cell in cells:
        request = next((r for r in cell.requests if r.request_id == request_id), None)
        if request is None:
            continue
        if cell.key.engine in told:
            others += 1
            continue
        told.add(cell.key.engine)
        lines += [*([""] if lines else []), *_story(cell, request)]
    if not lines:
        raise _unknown(cells, request_id)
    if others:
        lines += [
            "",
            f"it is in {counted(others, 'more cell')}; choose with --engine, --load and --round",
        ]
    return lines


def _story(cell: CellRecord, request: RequestRecord) -> Iterator[str]:
    yield _title(cell, request)
    if not request.arrived:
        yield "  never handed out: the run ended before its turn"
        return
    yield from _start(cell, request)
    for time_s, text in sorted(_middle(cell, request), key=lambda event: event[0]):
        yield _at(time_s, text)
    yield from _end(request)
    yield from _stall(cell, request)


def _title(cell: CellRecord, request: RequestRecord) -> str:
    key = cell.key
    label = f", class {plain(request.label)}" if request.label else ""
    return (
        f"{plain(request.request_id)} in {plain(key.engine)}, {plain(key.load)}, round {key.round}"
        f": {request.prompt_tokens} prompt tokens, {request.output_tokens} of "
        f"{request.max_tokens or 'any number of'} asked for{label}"
    )


def _start(cell: CellRecord, request: RequestRecord) -> Iterator[str]:
    began = began_s(request)
    yield _at(request.scheduled_s, f"arrives{_company(cell, request)}")
    if began is not None:
        queue_s = began - request.scheduled_s
        step = step_at(cell.steps, began)
        where = "" if step is None else f" at step {step.step}"
        yield _at(began, f"admitted{where}, after {seconds(queue_s)} in the queue")


def _company(cell: CellRecord, request: RequestRecord) -> str:
    """Who runs and who waits when it comes, in the order of the workload where two come at once."""
    at_s = request.scheduled_s
    running, waiting = [], []
    own_turn_is_past = False
    for other in cell.requests:
        own_turn_is_past = own_turn_is_past or other is request
        began, ended = began_s(other), ended_s(other)
        is_there = other.scheduled_s <= at_s and ended is not None and ended > at_s
        if other is request or not is_there or began is None:
            continue
        if began <= at_s:
            running.append(other)
        elif other.scheduled_s < at_s or not own_turn_is_past:
            waiting.append(other)
    if began_s(request) is None and not running:
        return ""
    ahead = f"behind {len(waiting)} that wait ({names(waiting)})" if waiting else "nobody waits"
    return f"; {len(running)} run{f' ({names(running)})' if running else ''}, {ahead}"


def _middle(cell: CellRecord, request: RequestRecord) -> Iterator[tuple[float, str]]:
    stats = request.stats
    if request.first_token_s is not None:
        chunks = stats.num_prefill_steps
        how = f", its prompt computed in {counted(chunks, 'step')}" if chunks else ""
        ttft = ttft_s(request) or 0.0
        yield request.first_token_s, f"first token, {seconds(ttft)} after its arrival{how}"
    away = zip(stats.preempted_from_s, stats.preempted_until_s, strict=True)
    for number, (from_s, until_s) in enumerate(away, 1):
        yield (
            from_s,
            f"preempted for the {ordinal(number)} time, for {seconds(until_s - from_s)}"
            f"{_memory_before(cell, from_s)}",
        )
    gap = longest_gap(request)
    if gap is not None:
        length = seconds(gap.end_s - gap.start_s)
        cause = stats.max_stall_cause or "not told"
        yield (
            gap.start_s,
            f"its longest stall begins after its {ordinal(gap.index + 1)} token event: {length} "
            f"without a token, cause {cause}",
        )


def _memory_before(cell: CellRecord, at_s: float) -> str:
    """How full the memory was in the step before, where the engine tells."""
    row = step_before(cell.steps, at_s)
    if row is None or row.blocks_free is None:
        return ""
    return (
        f" ({row.blocks_free} of {_blocks(row)} blocks were free, {row.num_running} requests ran)"
    )


def _blocks(row: StepRow) -> int:
    return (row.blocks_used or 0) + (row.blocks_cached or 0) + (row.blocks_free or 0)


def _end(request: RequestRecord) -> Iterator[str]:
    ended = ended_s(request)
    reason = f": {plain(request.reason)}" if request.reason else ""
    if request.status != "ok":
        yield _at(request.scheduled_s if ended is None else ended, f"{request.status}{reason}")
    elif ended is not None:
        e2e = e2e_s(request) or 0.0
        yield _at(ended, f"ends ({request.finish_reason}), {seconds(e2e)} after its arrival")
    sums: dict[str, float] = {}
    for span in spans(request):
        sums[span.kind] = sums.get(span.kind, 0.0) + span.end_s - span.start_s
    if sums:
        parts = ", ".join(f"{kind} {seconds(spent_s)}" for kind, spent_s in sums.items())
        steps = request.stats.num_steps
        yield f"  its time: {parts}" + (f"; work in {counted(steps, 'step')}" if steps else "")


def _stall(cell: CellRecord, request: RequestRecord) -> Iterator[str]:
    gap = longest_gap(request)
    if gap is None:
        return
    stall = Stall(cell, (request,), gap.start_s, gap.end_s, request.stats.max_stall_cause)
    seen = meanwhile(cell, gap.start_s, gap.end_s, [request])
    others = sorted(gaps_s(request))[:-1]
    rest = f"; its next longest gap is {seconds(float(others[-1]))}" if others else ""
    yield f"  in the longest stall: {cause_words(stall.cause, seen)}{rest}"
    yield from advice_lines(shorter_stall(stall, seen))


def _at(time_s: float, text: str) -> str:
    return f"{time_s:>10.3f} s  {text}"


def _unknown(cells: Sequence[CellRecord], request_id: str) -> CbbenchError:
    known = [request.request_id for cell in cells[:1] for request in cell.requests]
    shown = ", ".join(known[:5]) + (" ..." if len(known) > 5 else "")
    return CbbenchError(f"no request is called {request_id!r}; expected one of {shown}")
