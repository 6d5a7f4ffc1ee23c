"""A step whose time is a formula: `a + b * tokens + c * sequences`, spent on a virtual clock.

Copies to the host and back take their bytes over a bandwidth, before the rest of the step.
It computes nothing itself; another executor gives the tokens. Real and simulated runs share all
else.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from engines.api import RequestId
from engines.clock import VirtualClock
from engines.loop.executors.api import Batch, Executor, Handle, StepResult


@dataclass(frozen=True, slots=True)
class StepCost:
    """Seconds a step, a computed position and a row (padding counts as both), and of copies.

    Of a request that is swapped the positions that hold a token are copied, each
    `kv_bytes_per_token` long, at `swap_bytes_per_s` in either direction, one after another.
    """

    per_step_s: float
    per_token_s: float = 0.0
    per_sequence_s: float = 0.0
    kv_bytes_per_token: int = 0
    swap_bytes_per_s: float = math.inf

    def seconds(self, batch: Batch) -> float:
        """Drafts are positions like others."""
        tokens = sum(len(row.tokens) + row.lookahead for row in batch.rows)
        tokens += sum(row.num_tokens for row in batch.padding)
        sequences = len(batch.rows) + len(batch.padding)
        return self.per_step_s + self.per_token_s * tokens + self.per_sequence_s * sequences

    def swap_seconds(self, batch: Batch) -> float:
        """Of what the step copies out and in."""
        copied = sum(copy.num_tokens for copy in (*batch.swap_out, *batch.swap_in))
        return copied * self.kv_bytes_per_token / self.swap_bytes_per_s


class CostModelExecutor:
    """Lets `tokens` compute and moves `clock` by what `cost` says."""

    def __init__(self, clock: VirtualClock, cost: StepCost, tokens: Executor) -> None:
        self._clock = clock
        self._cost = cost
        self._tokens = tokens

    def submit(self, batch: Batch) -> Handle:
        cost = self._cost
        handle = self._tokens.submit(batch)
        return _TimedHandle(handle, self._clock, cost.seconds(batch), cost.swap_seconds(batch))

    def drop(self, request_id: RequestId) -> None:
        self._tokens.drop(request_id)

    def reset(self) -> None:
        self._tokens.reset()

    def close(self) -> None:
        self._tokens.close()


@dataclass(frozen=True, slots=True)
class _TimedHandle:
    handle: Handle
    clock: VirtualClock
    compute_s: float
    copy_s: float

    def result(self) -> StepResult:
        inner = self.handle.result()
        self.clock.advance(self.copy_s + self.compute_s)
        return StepResult(
            tokens=inner.tokens,
            accepted=inner.accepted,
            drafted=inner.drafted,
            compute_s=self.compute_s,
            copy_s=self.copy_s,
        )
