"""Static batching: wait until a batch is full, run it to the end of its longest request.

The rule of a script that calls `generate` on fixed batches, and of FasterTransformer's server.
A partial batch starts only when no request can come any more before one is completed. Prompts are
packed one after the other, while `generate` pads them all to the longest: the engine `static` has
that to compute too.

Starvation bound: a request waits for the batches before it, and for its own to fill, which may
take as long as arrivals take; there is no timer. No order displaces a batch under way.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, cast

from engines.api import JsonValue
from engines.loop.plan import Limits, Plan, View
from engines.loop.policies.orders import FIRST_COME, Order
from engines.loop.policies.registry import PolicyContext, PolicyEntry
from engines.loop.policies.request_level import (
    BatchState,
    nothing_can_come,
    run_batch,
    start_batch,
)
from engines.loop.policies.rules import MAX_NUM_SEQS, ORDER_SETTINGS, order_from


@dataclass(frozen=True, slots=True)
class StaticPolicy:
    """Batches of `max_num_seqs`."""

    max_num_seqs: int
    order: Order = FIRST_COME
    name: str = "static"

    @property
    def limits(self) -> Limits:
        return Limits(self.max_num_seqs)

    def initial_state(self) -> BatchState:
        return BatchState()

    def plan(self, view: View, state: BatchState) -> tuple[Plan, BatchState]:
        if view.running:
            return run_batch(view, state, self.order)
        if view.num_waiting < self.max_num_seqs and not nothing_can_come(view):
            return Plan(wait_until=math.inf), BatchState(served=state.served)
        return start_batch(view, state, self.order, self.max_num_seqs)


def _make(settings: Mapping[str, JsonValue], context: PolicyContext) -> StaticPolicy:
    return StaticPolicy(cast(int, settings["max_num_seqs"]), order_from(settings))


ENTRY: Final = PolicyEntry(
    name="static",
    summary="full batches, run to the end of their longest request",
    settings=(MAX_NUM_SEQS, *ORDER_SETTINGS),
    make=_make,
)
