"""The step log: one row a step, from what the loop knows when the step is over."""

from __future__ import annotations

from dataclasses import dataclass

from engines.api import StepRow
from engines.loop.kv.api import CacheUse
from engines.loop.plan import Plan
from engines.loop.step import Delivery


@dataclass(frozen=True, slots=True)
class StepTimes:
    """Instants and durations of one step, in seconds."""

    start_s: float
    schedule_s: float
    pack_s: float
    compute_s: float
    copy_s: float
    update_s: float
    end_s: float


@dataclass(frozen=True, slots=True)
class MemoryUse:
    """Who is where and what the cache holds while the step's requests still hold theirs."""

    num_running: int
    num_waiting: int
    use: CacheUse
    num_blocks: int
    free_blocks: int
    cached_blocks: int


def step_row(
    step: int,
    times: StepTimes,
    plan: Plan,
    delivery: Delivery,
    used: MemoryUse,
    positions: int,
    slots: int,
) -> StepRow:
    """The row of `steps.parquet`; `positions` is what the executor was given."""
    ledger = delivery.ledger
    return StepRow(
        step=step,
        start_s=times.start_s,
        end_s=times.end_s,
        compute_s=times.compute_s,
        schedule_s=times.schedule_s,
        pack_s=times.pack_s,
        copy_s=times.copy_s,
        num_running=used.num_running,
        num_waiting=used.num_waiting,
        slots=slots,
        useful_rows=ledger.rows,
        prefill_tokens=ledger.prefill_tokens,
        decode_tokens=sum(plan.work.values()) - ledger.prefill_tokens,
        prompt=ledger.prompt,
        output=ledger.output,
        recomputed=ledger.recomputed,
        padding=ledger.padding,
        rejected_draft=ledger.rejected_draft,
        past_stop=ledger.past_stop,
        tokens_held=used.use.held,
        tokens_reserved=used.use.reserved,
        blocks_used=used.num_blocks - used.free_blocks,
        blocks_cached=used.cached_blocks,
        blocks_free=used.free_blocks - used.cached_blocks,
        preemptions=len(plan.preempt),
        update_s=times.update_s,
        positions=positions,
        lost_inside_blocks=used.use.inside_blocks,
        lost_to_reservation=used.use.reservation,
        lost_to_fragmentation=used.use.fragmented,
    )
