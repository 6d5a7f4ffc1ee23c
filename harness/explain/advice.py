"""Which setting would have shortened a wait: rules, one a cause, from the settings in force.

Each rule is tried on a planted case in virtual time, by running again with what it says. It looks
at one wait and at nothing else: what a setting costs elsewhere is for a run to show.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, cast

from engines.api import JsonValue
from harness.explain.spans import began_s
from harness.explain.stalls import Meanwhile, Stall, step_at
from harness.records import CellRecord, RequestRecord

_REQUEST_LEVEL: Final = ("static", "window")
_PREEMPTING_ORDERS: Final = ("priority", "srpt")
_GENERATE: Final = ("sequential", "static", "dynamic")
_SLOW: Final = 3.0  # times the usual: no setting of a scheduler makes one step that slow
_LARGEST_WATERMARK: Final = 0.5  # of all blocks; a pool that is half empty needs no other rule


@dataclass(frozen=True, slots=True)
class Advice:
    """Settings to change together, and why; `engine`, when it takes another one.

    Without settings and engine it says why there is nothing to set.
    """

    why: str
    settings: Mapping[str, JsonValue] | None = None
    engine: str = ""


def shorter_stall(stall: Stall, seen: Meanwhile) -> list[Advice]:
    """What would have shortened it; never empty."""
    return list(_for_stall(stall, seen)) or [Advice("no setting of this engine bears on it")]


def sooner_start(cell: CellRecord, seen: Meanwhile) -> list[Advice]:
    """What would have shortened a wait in the queue during which `seen` went on."""
    return list(_for_queue(cell, seen)) or [Advice("no setting of this engine bears on it")]


def _for_stall(stall: Stall, seen: Meanwhile) -> Iterator[Advice]:
    settings = stall.cell.info.settings
    match stall.cause:
        case "preemption":
            yield from _against_preemption(stall, seen)
        case "prefill":
            if 2 * seen.recomputed > seen.prompt_tokens:
                yield _more_memory(stall.cell)
            yield from _against_prompts(settings, seen)
        case "token_budget":
            yield from _against_being_left_out(settings, seen)
        case "compute":
            yield from _against_computing(stall.cell, seen)
        case None:
            yield Advice("the engine does not tell what it did meanwhile")


def _against_preemption(stall: Stall, seen: Meanwhile) -> Iterator[Advice]:
    cell, settings = stall.cell, stall.cell.info.settings
    if settings.get("order") in _PREEMPTING_ORDERS:
        yield Advice("nobody takes another's place", {"order": "fcfs"})
    yield _more_memory(cell)
    if seen.running_before > 1 and "max_num_seqs" in settings:
        fewer = {"max_num_seqs": seen.running_before // 2}
        yield Advice("fewer share the memory; more wait in the queue", fewer)
    share = _free_after_admission(cell, stall.requests[0])
    if settings.get("admission") == "prompt" and share < _LARGEST_WATERMARK:
        change: dict[str, JsonValue] = {"admission": "watermark", "watermark": share}
        yield Advice("it would have waited until more was free for answers to grow into", change)
    if settings.get("admission", "full") != "full":
        full = {"admission": "full"}
        yield Advice(
            "room for the whole answer is taken at admission, so nobody is ever short", full
        )


def _against_prompts(settings: Mapping[str, JsonValue], seen: Meanwhile) -> Iterator[Advice]:
    """Pieces of half of what was taken in at once, beside a token for each row."""
    piece = max(1, seen.most_prompt_tokens // 2)
    budget: dict[str, JsonValue] = {"max_num_batched_tokens": seen.rows + piece}
    if settings.get("policy") != "chunked":
        why = "decodes go first, prompts run in pieces beside them"
        yield Advice(why, {"policy": "chunked"} | budget)
    elif settings.get("enable_chunked_prefill") is False:
        yield Advice("prompts run in pieces", {"enable_chunked_prefill": True} | budget)
    elif seen.most_prompt_tokens > 1:
        yield Advice("a step takes in fewer prompt tokens beside the decodes", budget)
        if len(seen.prompts) == 1:
            piece_of_one = {"long_prefill_token_threshold": piece}
            yield Advice("one long prompt may fill less of a step", piece_of_one)


def _against_being_left_out(settings: Mapping[str, JsonValue], seen: Meanwhile) -> Iterator[Advice]:
    budget = _number(settings, "max_num_batched_tokens")
    if budget:
        more = {"max_num_batched_tokens": max(2 * budget, seen.running)}
        yield Advice("every resident gets its token in every step", more)
    if 0 < budget < _number(settings, "max_num_seqs"):
        yield Advice("no more residents than a step has tokens", {"max_num_seqs": budget})
    if settings.get("order") in _PREEMPTING_ORDERS:
        yield Advice("lower ranks are served too", {"order": "fcfs"})


def _against_computing(cell: CellRecord, seen: Meanwhile) -> Iterator[Advice]:
    if seen.slowness is not None and seen.slowness > _SLOW:
        yield Advice(
            f"a step took {seen.slowness:.1f} times the usual, with no prompt in it: no setting "
            "does that; look at the verdict for other programs and collector pauses"
        )
        return
    if seen.padding:
        yield from _without_padding(cell)
    seats = "max_batch_size" if cell.info.name in _GENERATE else "max_num_seqs"
    if seen.rows > 1 and seats in cell.info.settings:
        yield Advice("fewer rows make a step shorter", {seats: seen.rows // 2})
    elif seen.rows == 1 and not seen.padding:
        yield Advice("a step with one row takes this long: a smaller model or a faster device")


def _without_padding(cell: CellRecord) -> Iterator[Advice]:
    """Request-level batches compute rows that have ended."""
    why = "rows that have ended leave the batch instead of being computed on"
    if cell.info.name in _GENERATE:
        yield Advice(why, engine="continuous")
    elif cell.info.settings.get("policy") in _REQUEST_LEVEL:
        yield Advice(why, {"policy": "chunked"})


def _for_queue(cell: CellRecord, seen: Meanwhile) -> Iterator[Advice]:
    settings = cell.info.settings
    why = "a request joins as soon as there is a place, not when a whole batch has ended"
    if cell.info.name in _GENERATE:
        yield Advice(why, engine="continuous")
    elif settings.get("policy") in _REQUEST_LEVEL:
        yield Advice(why, {"policy": "chunked"})
    seats = _number(settings, "max_num_seqs")
    if 0 < seats <= seen.running:
        yield Advice("all places were taken", {"max_num_seqs": 2 * seats})
    elif seen.running and cell.info.kv_tokens is not None:
        yield _more_memory(cell)


def _more_memory(cell: CellRecord) -> Advice:
    """By the setting that was in force: `num_blocks` outweighs `kv_memory`."""
    name = "num_blocks" if "num_blocks=" in cell.spec else "kv_memory"
    value = _number(cell.info.settings, name)
    why = "more keys and values fit"
    return Advice(why, {name: 2 * value}) if value else Advice(why + f": a larger {name}")


def _free_after_admission(cell: CellRecord, request: RequestRecord) -> float:
    """The share of blocks that were free when it had come in, rounded up; 1 where none is told."""
    began = began_s(request)
    first = None if began is None else step_at(cell.steps, began)
    if first is None or first.blocks_used is None or first.blocks_free is None:
        return 1.0
    free = first.blocks_free + (first.blocks_cached or 0)
    return math.ceil(100 * (free + 1) / (free + first.blocks_used)) / 100


def _number(settings: Mapping[str, JsonValue], name: str) -> int:
    """0 for a setting that is missing or left open."""
    return cast(int, settings.get(name) or 0)
