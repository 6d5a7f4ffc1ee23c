"""Dynamic batching: gather requests for a window of time, then run them to the end.

The rule of Triton's dynamic batcher: a batch starts when it is full or when its oldest request
has waited `max_delay_s`. What queued up while a batch ran goes out at once, together.

Starvation bound: a request waits at most `max_delay_s` once nobody runs and nobody is before it.
No order displaces a batch under way.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, cast

from engines.api import JsonValue
from engines.loop.plan import Limits, Plan, View
from engines.loop.policies.orders import FIRST_COME, Order
from engines.loop.policies.registry import PolicyContext, PolicyEntry
from engines.loop.policies.request_level import (
    BatchState,
    run_batch,
    start_batch,
)
from engines.loop.policies.rules import MAX_NUM_SEQS, ORDER_SETTINGS, order_from
from engines.registry import Setting
from engines.settings import non_negative_float


@dataclass(frozen=True, slots=True)
class WindowPolicy:
    """Batches of up to `max_num_seqs`."""

    max_num_seqs: int
    max_delay_s: float
    order: Order = FIRST_COME
    name: str = "window"

    @property
    def limits(self) -> Limits:
        return Limits(self.max_num_seqs)

    def initial_state(self) -> BatchState:
        return BatchState()

    def plan(self, view: View, state: BatchState) -> tuple[Plan, BatchState]:
        if view.running:
            return run_batch(view, state, self.order)
        oldest = next(iter(view.waiting))
        queued_behind_a_batch = oldest.request.scheduled_s < view.last_end_s
        if view.num_waiting < self.max_num_seqs and not queued_behind_a_batch:
            window_ends_s = oldest.request.scheduled_s + self.max_delay_s
            if window_ends_s > view.now_s:
                return Plan(wait_until=window_ends_s), BatchState(served=state.served)
        return start_batch(view, state, self.order, self.max_num_seqs)


def _make(settings: Mapping[str, JsonValue], context: PolicyContext) -> WindowPolicy:
    delay_s = cast(float, settings["max_delay_ms"]) / 1e3
    return WindowPolicy(cast(int, settings["max_num_seqs"]), delay_s, order_from(settings))


ENTRY: Final = PolicyEntry(
    name="window",
    summary="what gathers within a delay, run to the end of its longest request",
    settings=(
        MAX_NUM_SEQS,
        Setting(
            "max_delay_ms",
            non_negative_float,
            50.0,
            "how long the oldest waiting request may wait for company, in milliseconds",
        ),
        *ORDER_SETTINGS,
    ),
    make=_make,
)
