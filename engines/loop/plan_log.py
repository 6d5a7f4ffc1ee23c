"""What a loop tells of each turn to one observer: enough to plan the whole run again.

Plain values. How they are written down is the observer's matter, planning again `replay`'s.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from engines.api import Due, Request, RequestId
from engines.loop.executors.api import StepResult
from engines.loop.plan import Plan


@dataclass(frozen=True, slots=True)
class Look:
    """What the loop saw of the world at the start of a turn, at the planning instant `now_s`.

    `arrived` are all that it took, those that it then refused included; `cancelled` all that the
    source named.
    """

    now_s: float
    arrived: Sequence[Request]
    cancelled: Sequence[RequestId]
    next_due: Due


@dataclass(frozen=True, slots=True)
class Turn:
    """One round of a loop. Without a plan nobody was there; without a result it waited.

    `result` belongs to the rows of `plan.work`, in order; its tokens came at `delivered_s`.
    """

    look: Look
    plan: Plan | None = None
    result: StepResult | None = None
    delivered_s: float | None = None


class TurnObserver(Protocol):
    def turn(self, turn: Turn) -> None:
        """Called in the loop's thread, before a wait and after a step; never blocks."""
        ...
