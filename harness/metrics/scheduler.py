"""What the engine's own step rows say: the ledger, utilisation, preemptions, Little's law.

Everything is `None` for an engine that reports no steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np
import numpy.typing as npt

from engines.api import StepRow
from harness.metrics.results import KvLoss, Ledger, Preemptions, Scheduling, Utilisation
from harness.records.schema import CellRecord, RequestRecord

Array = npt.NDArray[np.float64]


def ledger(record: CellRecord) -> Ledger | None:
    """Executed positions by use. First-time work of requests that did not end ok is discarded."""
    if not record.steps:
        return None
    ok = [request.stats for request in record.requests if request.status == "ok"]
    useful_prompt = sum(stats.first_time_prompt for stats in ok)
    useful_output = sum(stats.first_time_output for stats in ok)
    first_time = sum(row.prompt + row.output for row in record.steps)
    past_stop = sum(row.past_stop for row in record.steps)
    return Ledger(
        useful_prompt=useful_prompt,
        useful_output=useful_output,
        recomputed=sum(row.recomputed for row in record.steps),
        padding=sum(row.padding for row in record.steps),
        rejected_draft=sum(row.rejected_draft for row in record.steps),
        discarded=first_time - useful_prompt - useful_output + past_stop,
        executed=sum(row.executed for row in record.steps),
    )


def ledger_faults(record: CellRecord) -> tuple[str, ...]:
    """Where the engine's requests and its steps disagree, a sentence each."""
    if not record.steps:
        return ()
    faults = [
        f"step {row.step} was given {row.positions} positions, its ledger has {row.executed}"
        for row in record.steps
        if row.positions is not None and row.positions != row.executed
    ][:1]
    for word, by_request, by_step in (
        (
            "prompt",
            sum(request.stats.first_time_prompt for request in record.requests),
            sum(row.prompt for row in record.steps),
        ),
        (
            "output",
            sum(request.stats.first_time_output for request in record.requests),
            sum(row.output for row in record.steps),
        ),
    ):
        # What a cut recording never closed has no stats, so there only too much is a fault.
        if by_request > by_step or (by_request < by_step and not record.interrupted):
            faults.append(
                f"steps executed {by_step} first-time {word} positions, requests say {by_request}"
            )
    wrong = sum(not _positions_fit(r) for r in record.requests if r.status == "ok")
    if wrong:
        faults.append(f"{wrong} ok requests did not execute prompt + output - 1 positions")
    return tuple(faults)


def preemptions(
    requests: Sequence[RequestRecord], kv_bytes_per_token: int | None
) -> Preemptions | None:
    """`None` when no request says how often it was preempted.

    Swapped are the positions that held a token; the rest of their last block is not copied.
    """
    known = [r.stats.num_preemptions for r in requests if r.stats.num_preemptions is not None]
    if not known:
        return None
    swapped = [r.stats.swapped_tokens for r in requests if r.stats.swapped_tokens is not None]
    swapped_bytes = sum(swapped) * kv_bytes_per_token if swapped and kv_bytes_per_token else None
    return Preemptions(
        sum(known), sum(number > 0 for number in known), max(known), swapped_bytes=swapped_bytes
    )


def slot_utilisation(steps: Sequence[StepRow]) -> float | None:
    """Useful rows / (steps x slots)."""
    slots = sum(row.slots for row in steps)
    return sum(row.useful_rows for row in steps) / slots if slots else None


def kv_utilisation(steps: Sequence[StepRow]) -> Utilisation | None:
    """Tokens held / tokens reserved, over the steps that reserved any."""
    return _weighted(
        (row.tokens_held / row.tokens_reserved, row.end_s - row.start_s)
        for row in steps
        if row.tokens_held is not None and row.tokens_reserved
    )


def kv_pool_used(record: CellRecord) -> Utilisation | None:
    """Tokens reserved / tokens in the pool."""
    pool = record.info.kv_tokens
    if not pool:
        return None
    return _weighted(
        (row.tokens_reserved / pool, row.end_s - row.start_s)
        for row in record.steps
        if row.tokens_reserved is not None
    )


def kv_loss(record: CellRecord) -> KvLoss | None:
    """What was lost / tokens in the pool, by cause."""
    pool = record.info.kv_tokens
    if not pool:
        return None

    def share(lost: Callable[[StepRow], int | None]) -> float | None:
        known = [(lost(row), row.end_s - row.start_s) for row in record.steps]
        mean = _weighted((tokens / pool, s) for tokens, s in known if tokens is not None)
        return mean.mean if mean else None

    loss = KvLoss(
        inside_blocks=share(lambda row: row.lost_inside_blocks),
        reservation=share(lambda row: row.lost_to_reservation),
        fragmentation=share(lambda row: row.lost_to_fragmentation),
    )
    return None if loss == KvLoss(None, None, None) else loss


def residents(steps: Sequence[StepRow]) -> Utilisation | None:
    """Requests that hold memory."""
    return _weighted((row.num_running, row.end_s - row.start_s) for row in steps)


def scheduling(steps: Sequence[StepRow], token_budget: int | None = None) -> Scheduling | None:
    """`token_budget`: the positions that fill a step, for engines that have such a bound."""
    if not steps:
        return None
    schedule_s = sum(row.schedule_s for row in steps)
    pack_s = sum(row.pack_s for row in steps)
    step_s = sum(row.end_s - row.start_s for row in steps)
    return Scheduling(
        schedule_s=schedule_s,
        pack_s=pack_s,
        compute_s=sum(row.compute_s for row in steps),
        step_s=step_s,
        overhead=(schedule_s + pack_s) / step_s if step_s > 0 else None,
        full_step_s=_full_step_s(steps, token_budget),
    )


def _full_step_s(steps: Sequence[StepRow], token_budget: int | None) -> float | None:
    if token_budget is None:
        return None
    full = [row.end_s - row.start_s for row in steps if row.executed >= token_budget]
    return float(np.median(full)) if full else None


def prefix_hit_share(requests: Sequence[RequestRecord]) -> float | None:
    """Prompt positions found in a prefix cache / all prompt positions of those that say so."""
    known = [request for request in requests if request.stats.prefix_hit_tokens is not None]
    prompts = sum(request.prompt_tokens for request in known)
    hits = sum(request.stats.prefix_hit_tokens or 0 for request in known)
    return hits / prompts if prompts else None


def littles_law(record: CellRecord) -> float | None:
    """L / (lambda W) of the requests in service: 1 when the engine counts right.

    L is the engine's own `num_running` over its steps' time. Lambda W is the time that requests
    spent in service during steps, from their own times: first planned until last token, less
    what they were preempted for. `None` unless steps and every such request tell.
    """
    served = [r for r in record.requests if r.stats.queue_s is not None and r.end_s is not None]
    unknown = any(r.token_times_s and r.stats.queue_s is None for r in record.requests)
    unserved = any(r.stats.num_steps and r.end_s is None for r in record.requests)
    if not record.steps or not served or unknown or unserved or record.interrupted:
        return None
    starts_s = np.array([row.start_s for row in record.steps])
    ends_s = np.array([row.end_s for row in record.steps])
    running = np.array([row.num_running for row in record.steps])
    counted_s = float(np.dot(running, ends_s - starts_s))
    begun_s = np.array([r.scheduled_s + (r.stats.queue_s or 0.0) for r in served])
    ended_s = np.array([r.end_s for r in served], dtype=np.float64)
    inside = _in_service_until(ends_s, begun_s, ended_s) - _in_service_until(
        starts_s, begun_s, ended_s
    )
    own_s = float(inside.sum()) - sum(r.stats.preempted_s or 0.0 for r in served)
    return counted_s / own_s if own_s > 0 else None


def _in_service_until(times_s: Array, begun_s: Array, ended_s: Array) -> Array:
    """Request-seconds in service before each time."""
    return _seconds_since(times_s, begun_s) - _seconds_since(times_s, ended_s)


def _seconds_since(times_s: Array, instants_s: Array) -> Array:
    """The sum of max(0, time - instant) over all instants, for each time."""
    ordered = np.sort(instants_s)
    sums = np.concatenate(([0.0], np.cumsum(ordered)))
    passed = np.searchsorted(ordered, times_s)
    return np.asarray(passed * times_s - sums[passed], dtype=np.float64)


def _positions_fit(request: RequestRecord) -> bool:
    stats = request.stats
    hits = (stats.prefix_hit_tokens or 0) + stats.later_hit_tokens
    executed = stats.first_time_prompt + stats.first_time_output + hits
    return executed == request.prompt_tokens + request.output_tokens - 1


def _weighted(samples: Iterable[tuple[float, float]]) -> Utilisation | None:
    """Of (value, seconds) pairs; plain mean when no time passed at all."""
    pairs = list(samples)
    if not pairs:
        return None
    values = np.array([value for value, _ in pairs])
    seconds = np.array([second for _, second in pairs])
    mean = np.dot(values, seconds) / seconds.sum() if seconds.sum() > 0 else values.mean()
    return Utilisation(float(mean), float(values.max()))
