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

from harness.looks import LOOKS

MOST_ROUNDS: Final = 5


@dataclass(frozen=True, slots=True)
class RoundPlan:
    """How many rounds are wanted: `repeats` of them, or what fits into `budget_s`.

    The budget counts from the start of the program; `closing_s` of it are kept for the files.
    With both given, `repeats` is the most and the budget may stop earlier. `until_ci` of 0.05 ends
    the run at a look at which the main ratios' intervals reach no further than 5%.
    """

    repeats: int | None = None
    budget_s: float | None = None
    until_ci: float | None = None
    most: int = MOST_ROUNDS
    closing_s: float = 4.0

    @property
    def limit(self) -> int:
        """The most rounds that can come."""
        if self.repeats is not None:
            return self.repeats
        return self.most if self.until_ci is None else LOOKS[-1]

    @property
    def looks(self) -> tuple[int, ...]:
        """After how many rounds the intervals are looked at; none after the last that can come."""
        return () if self.until_ci is None else tuple(n for n in LOOKS if n < self.limit)


@dataclass(frozen=True, slots=True)
class RoundDecision:
    """Whether another round begins, how many are expected in all (`None`: unknown), and why."""

    goes_on: bool
    expected: int | None
    reason: str


def decide(
    plan: RoundPlan, durations_s: Sequence[float], elapsed_s: float, reach: float = math.inf
) -> RoundDecision:
    """After the rounds that took `durations_s`, `elapsed_s` from the start of the program.

    `reach` is that of the widest main interval, known at looks alone.
    """
    done = len(durations_s)
    known = plan.limit if plan.budget_s is None and plan.until_ci is None else None
    if done == 0:
        return RoundDecision(True, known, "the first round")
    if plan.until_ci is not None and done in plan.looks and reach <= plan.until_ci:
        return RoundDecision(False, done, _narrow_reason(plan.until_ci, reach, done))
    if done >= plan.limit:
        return RoundDecision(False, done, _limit_reason(plan))
    if plan.budget_s is None:
        return RoundDecision(True, known, _limit_reason(plan))
    longest_s = max(durations_s)
    left_s = plan.budget_s - elapsed_s - plan.closing_s
    fit = math.floor(left_s / longest_s) if longest_s > 0 else plan.limit
    expected = min(plan.limit, done + max(fit, 0))
    if expected > done:
        likely = expected if plan.until_ci is None else None
        return RoundDecision(True, likely, _limit_reason(plan))
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
    if plan.until_ci is not None:
        return f"{plan.limit} rounds are the most with --until-ci"
    return f"{plan.limit} rounds give intervals, and they fit the budget"


def _narrow_reason(until_ci: float, reach: float, done: int) -> str:
    return (
        f"after {done} rounds the main ratios' intervals reach {reach:.1%} or less, "
        f"asked for with --until-ci {until_ci * 100:g}%"
    )
