"""Static batching: wait until a batch is full, run it to the end of its longest request.

The rule of a script that calls `generate` on fixed batches, and of FasterTransformer's server.
A partial batch starts only when no request can come any more before one is completed.

Starvation bound: a request waits for the batches before it, and for its own to fill, which may
take as long as arrivals take; there is no timer.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from engines.loop.plan import Limits, Plan, View
from engines.loop.policies.request_level import (
    BatchState,
    nothing_can_come,
    run_batch,
    start_batch,
)


@dataclass(frozen=True, slots=True)
class StaticPolicy:
    """Batches of `max_num_seqs`."""

    max_num_seqs: int
    name: str = "static"

    @property
    def limits(self) -> Limits:
        return Limits(self.max_num_seqs)

    def initial_state(self) -> BatchState:
        return BatchState()

    def plan(self, view: View, state: BatchState) -> tuple[Plan, BatchState]:
        if view.running:
            return run_batch(view, state), state
        if view.num_waiting < self.max_num_seqs and not nothing_can_come(view):
            return Plan(wait_until=math.inf), BatchState()
        return start_batch(view, self.max_num_seqs)
