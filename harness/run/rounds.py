"""When each engine runs and how many rounds there are: pure decisions, no clock, no processes.

A round runs every load once on every engine. Rounds follow one another, so that slow drifts of
the machine meet all engines alike; the order of engines within a round is drawn anew each time.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

MOST_ROUNDS: Final = 5


@dataclass(frozen=True, slots=True)
class RoundPlan:
    """How many rounds are wanted: `repeats` of them, or what fits into `budget_s`.

    The budget counts from the start of the program; `closing_s` of it are kept for the files.
    With both given, `repeats` is the most and the budget may stop earlier.
    """

    repeats: int | None = None
    budget_s: float | None = None
    most: int = MOST_ROUNDS
    closing_s: float = 4.0

    @property
    def limit(self) -> int:
        """The most rounds that can come."""
        return self.most if self.repeats is None else self.repeats


@dataclass(frozen=True, slots=True)
class RoundDecision:
    """Whether another round begins, how many are expected in all (`None`: unknown), and why."""

    goes_on: bool
    expected: int | None
    reason: str


def decide(plan: RoundPlan, durations_s: Sequence[float], elapsed_s: float) -> RoundDecision:
    """After the rounds that took `durations_s`, `elapsed_s` from the start of the program."""
    done = len(durations_s)
    if done == 0:
        return RoundDecision(True, plan.limit if plan.budget_s is None else None, "the first round")
    if done >= plan.limit:
        return RoundDecision(False, done, _limit_reason(plan))
    if plan.budget_s is None:
        return RoundDecision(True, plan.limit, _limit_reason(plan))
    longest_s = max(durations_s)
    left_s = plan.budget_s - elapsed_s - plan.closing_s
    fit = math.floor(left_s / longest_s) if longest_s > 0 else plan.limit
    expected = min(plan.limit, done + max(fit, 0))
    if expected > done:
        return RoundDecision(True, expected, _limit_reason(plan))
    return RoundDecision(
        False,
        done,
        f"another round of about {longest_s:.0f} s would pass the budget of {plan.budget_s:.0f} s "
        f"({elapsed_s:.0f} s used)",
    )


def engine_order(
    labels: Sequence[str], *, seed: int, round_number: int, load_index: int, shuffled: bool = True
) -> tuple[str, ...]:
    """The order of engines for one load of one round; a function of its arguments alone."""
    order = list(labels)
    if shuffled:
        rng = random.Random(f"engine order {seed} {round_number} {load_index}")
        for last in range(len(order) - 1, 0, -1):
            other = int(rng.random() * (last + 1))
            order[last], order[other] = order[other], order[last]
    return tuple(order)


def _limit_reason(plan: RoundPlan) -> str:
    if plan.repeats is not None:
        return f"asked for with --repeats {plan.repeats}"
    return f"{plan.limit} rounds give intervals, and they fit the budget"
