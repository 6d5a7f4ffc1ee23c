"""Dynamic batching: gather requests for a window of time, then run them to the end.

The rule of Triton's dynamic batcher: a batch starts when it is full or when its oldest request
has waited `max_delay_s`. What queued up while a batch ran goes out at once, together.

Starvation bound: a request waits at most `max_delay_s` once nobody runs and nobody is before it.
"""

from __future__ import annotations

from dataclasses import dataclass

from engines.loop.plan import Limits, Plan, View
from engines.loop.policies.request_level import (
    BatchState,
    run_batch,
    start_batch,
)


@dataclass(frozen=True, slots=True)
class WindowPolicy:
    """Batches of up to `max_num_seqs`."""

    max_num_seqs: int
    max_delay_s: float
    name: str = "window"

    @property
    def limits(self) -> Limits:
        return Limits(self.max_num_seqs)

    def initial_state(self) -> BatchState:
        return BatchState()

    def plan(self, view: View, state: BatchState) -> tuple[Plan, BatchState]:
        if view.running:
            return run_batch(view, state), state
        oldest = next(iter(view.waiting))
        queued_behind_a_batch = oldest.request.scheduled_s < view.last_end_s
        if view.num_waiting < self.max_num_seqs and not queued_behind_a_batch:
            window_ends_s = oldest.request.scheduled_s + self.max_delay_s
            if window_ends_s > view.now_s:
                return Plan(wait_until=window_ends_s), BatchState()
        return start_batch(view, self.max_num_seqs)
