"""From a verified plan to a batch, and from its result to events and the ledger.

Both directions of one step, as functions on the loop's sequences; no decision, no clock.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from engines.api import FinishReason, RequestId
from engines.loop.executors.api import Batch, Row, StepResult, SwapCopy
from engines.loop.kv.api import KVCache
from engines.loop.ledger import StepLedger
from engines.loop.plan import Plan
from engines.loop.roster import Roster
from engines.loop.sequence import Sequence


@dataclass(slots=True)
class Delivery:
    """What a step gave: tokens by request, those that ended, and what the positions were for."""

    ledger: StepLedger
    request_ids: list[RequestId] = field(default_factory=list)
    token_ids: list[list[int]] = field(default_factory=list)
    ended: list[tuple[Sequence, FinishReason]] = field(default_factory=list)


def build_batch(
    plan: Plan,
    step: int,
    roster: Roster,
    cache: KVCache,
    swapped_out: dict[RequestId, list[int]],
) -> Batch:
    """The batch of a committed plan; residency has been brought up to date before."""
    running = roster.running.by_id
    rows = []
    for name, n in plan.work.items():
        sequence = running[name]
        start = sequence.num_computed
        tokens = sequence.tokens
        rows.append(
            Row(
                request_id=name,
                tokens=tokens[start : start + n],
                start=start,
                block_table=cache.table(name),
                sample=start + n == len(tokens),
                sampling=sequence.request.sampling,
                lookahead=plan.lookahead.get(name, 0) if plan.lookahead else 0,
                forbidden=sequence.stop_ids,
                forbidden_below=sequence.min_len,
            )
        )
    return Batch(
        step=step,
        rows=rows,
        padding=plan.padding,
        swap_out=[
            SwapCopy(name, blocks, roster.swapped.by_id[name].num_computed)
            for name, blocks in swapped_out.items()
        ],
        swap_in=[
            SwapCopy(name, cache.table(name), running[name].num_computed) for name in plan.resume
        ],
    )


def positions_of(batch: Batch, result: StepResult) -> int:
    """Everything that the executor computed, counted from what it was given."""
    given = sum(len(row.tokens) for row in batch.rows)
    given += sum(row.num_tokens for row in batch.padding)
    return given + sum(result.drafted or ())


def apply_result(
    batch: Batch,
    result: StepResult,
    roster: Roster,
    cache: KVCache,
    start_s: float,
    now_s: float,
) -> Delivery:
    """Moves every row's sequence on and sorts out what it has to deliver at `now_s`."""
    delivery = Delivery(StepLedger(padding=sum(row.num_tokens for row in batch.padding)))
    running = roster.running.by_id
    roster.steps.add(batch.step, start_s, now_s, prompt_share(batch))
    for index, row in enumerate(batch.rows):
        sequence = running[row.request_id]
        n = len(row.tokens)
        delivery.ledger.charge(sequence, n)
        sequence.num_computed += n
        if row.sample:
            kept = _take_tokens(sequence, index, result, delivery)
            sequence.append(kept, now_s)
        if sequence.num_computed > sequence.high_water:
            sequence.high_water = sequence.num_computed
        sequence.last_scheduled_step = batch.step
        cache.record(sequence)
        if row.lookahead:
            cache.trim(sequence)
    return delivery


def prompt_share(batch: Batch) -> float:
    """The part of the step's positions that were prompts, or answers computed again; 0 to 1."""
    prompts = positions = 0
    for row in batch.rows:
        n = len(row.tokens)
        positions += n
        if n > 1 or not row.sample:
            prompts += n
    if not prompts:
        return 0.0
    return prompts / (positions + sum(row.num_tokens for row in batch.padding))


def _take_tokens(
    sequence: Sequence, index: int, result: StepResult, delivery: Delivery
) -> list[int]:
    """The tokens of a row up to its stop, entered into the delivery."""
    tokens = list(result.tokens[index])
    assert tokens, f"row {sequence.request_id!r} wanted a token and got none"
    kept, finish_reason = _until_stop(sequence, tokens)
    if result.accepted is not None and result.drafted is not None:
        accepted, drafted = result.accepted[index], result.drafted[index]
        assert len(tokens) == accepted + 1, "accepted drafts give one token each, and one more"
        delivery.ledger.charge_drafts(sequence, drafted, accepted, len(kept))
        sequence.num_computed += min(accepted, len(kept) - 1)
    delivery.request_ids.append(sequence.request_id)
    delivery.token_ids.append(kept)
    if finish_reason is not None:
        delivery.ended.append((sequence, finish_reason))
    return kept


def _until_stop(sequence: Sequence, tokens: list[int]) -> tuple[list[int], FinishReason | None]:
    room = sequence.max_len - len(sequence.tokens)
    if sequence.stop_ids:
        for position, token in enumerate(tokens[:room]):
            if token in sequence.stop_ids:
                return tokens[: position + 1], "stop"
    if len(tokens) >= room:
        return tokens[:room], "length"
    return tokens, None
