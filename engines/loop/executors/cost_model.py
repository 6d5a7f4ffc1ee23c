"""A step whose time is a formula: `a + b * tokens + c * sequences`, spent on a virtual clock.

It computes nothing itself; another executor gives the tokens. Real and simulated runs share all
else.
"""

from __future__ import annotations

from dataclasses import dataclass

from engines.api import RequestId
from engines.clock import VirtualClock
from engines.loop.executors.api import Batch, Executor, Handle, StepResult


@dataclass(frozen=True, slots=True)
class StepCost:
    """Seconds a step, a computed position and a row (padding counts as both)."""

    per_step_s: float
    per_token_s: float = 0.0
    per_sequence_s: float = 0.0

    def seconds(self, batch: Batch) -> float:
        """Drafts are positions like others."""
        tokens = sum(len(row.tokens) + row.lookahead for row in batch.rows)
        tokens += sum(row.num_tokens for row in batch.padding)
        sequences = len(batch.rows) + len(batch.padding)
        return self.per_step_s + self.per_token_s * tokens + self.per_sequence_s * sequences


class CostModelExecutor:
    """Lets `tokens` compute and moves `clock` by what `cost` says."""

    def __init__(self, clock: VirtualClock, cost: StepCost, tokens: Executor) -> None:
        self._clock = clock
        self._cost = cost
        self._tokens = tokens

    def submit(self, batch: Batch) -> Handle:
        return _TimedHandle(self._tokens.submit(batch), self._clock, self._cost.seconds(batch))

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

    def result(self) -> StepResult:
        inner = self.handle.result()
        self.clock.advance(self.compute_s)
        return StepResult(
            tokens=inner.tokens,
            accepted=inner.accepted,
            drafted=inner.drafted,
            compute_s=self.compute_s,
        )
