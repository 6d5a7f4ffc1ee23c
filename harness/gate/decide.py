"""Pass, regression or inconclusive, for one metric of one case. Pure; reads no file.

A regression is called when the whole interval lies past the limit, a pass when none of it does;
between the two nobody can tell. Nothing that is unknown ever passes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median, stdev
from typing import Final, Literal

from harness.compare.case import Values
from harness.gate.limits import Limits
from harness.statistics import (
    CONFIDENCE,
    LEAST_ROUNDS,
    Direction,
    UnpairedRatio,
    compare_unpaired,
    rounds_needed,
)

Outcome = Literal["pass", "regression", "inconclusive"]
_ROUNDING: Final = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """`limit` is the ratio at which a regression begins; `None` where no ratio was asked.

    `reason` is a sentence, empty where the interval says it all.
    """

    outcome: Outcome
    reason: str = ""
    baseline_value: float | None = None
    current_value: float | None = None
    baseline_rounds: int = 0
    current_rounds: int = 0
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    limit: float | None = None


def decide(baseline: Values, current: Values, direction: Direction, limits: Limits) -> Decision:
    """The values are of rounds that were not run in turns, so they are not paired."""
    a = [value for value in baseline if value is not None]
    b = [value for value in current if value is not None]
    missing = _missing("the baseline", baseline, a) or _missing("this run", current, b)
    if missing:
        return _described(a, b, outcome="inconclusive", reason=missing)
    if min(*a, *b) <= 0:
        outcome, reason = _without_ratio(a, b, direction, limits)
        return _described(a, b, outcome=outcome, reason=reason)
    found = compare_unpaired(a, b, direction)
    outcome, reason = _by_interval(found, a, b, limits.factor(direction), direction)
    return _described(
        a,
        b,
        outcome=outcome,
        reason=reason,
        ratio=found.ratio,
        low=found.low,
        high=found.high,
        limit=limits.factor(direction),
    )


def _described(
    a: Sequence[float],
    b: Sequence[float],
    *,
    outcome: Outcome,
    reason: str,
    ratio: float | None = None,
    low: float | None = None,
    high: float | None = None,
    limit: float | None = None,
) -> Decision:
    return Decision(
        outcome=outcome,
        reason=reason,
        baseline_value=median(a) if a else None,
        current_value=median(b) if b else None,
        baseline_rounds=len(a),
        current_rounds=len(b),
        ratio=ratio,
        low=low,
        high=high,
        limit=limit,
    )


def _missing(side: str, values: Values, known: Sequence[float]) -> str:
    """A round without a value may be the very one that was slow, so none is left out."""
    if not known:
        return f"{side} has no value of it"
    if len(known) < len(values):
        return f"{len(values) - len(known)} of {len(values)} rounds of {side} have no value of it"
    return ""


def _without_ratio(
    a: Sequence[float], b: Sequence[float], direction: Direction, limits: Limits
) -> tuple[Outcome, str]:
    """Where something measured 0: every round against the baseline's extremes, no interval."""
    if direction == "higher":
        return _zero_of_good(a, b, limits)
    usual, most = median(a) + limits.max_increase_abs, max(a) + limits.max_increase_abs
    if max(b) <= usual:
        return "pass", f"no round is above {usual:g}, by the rule for a measured 0"
    past = sum(value > most for value in b)
    if past == len(b):
        return "regression", f"every round is above {most:g}, by the rule for a measured 0"
    return "inconclusive", f"{past} of {len(b)} rounds are above {most:g}; measure more rounds"


def _zero_of_good(a: Sequence[float], b: Sequence[float], limits: Limits) -> tuple[Outcome, str]:
    if min(a) <= 0:
        return "inconclusive", "a round of the baseline measured 0; make a sound baseline"
    zeros = sum(value <= 0 for value in b)
    told = f"{zeros} of {len(b)} rounds measured 0"
    if max(b) < min(a) * limits.factor("higher"):
        return "regression", f"{told}, and every round is past the limit"
    return "inconclusive", f"{told}; see why, and measure again"


def _by_interval(
    found: UnpairedRatio, a: Sequence[float], b: Sequence[float], limit: float, direction: Direction
) -> tuple[Outcome, str]:
    if found.low is None or found.high is None:
        return "inconclusive", (
            f"{found.baseline_rounds} rounds of the baseline and {found.engine_rounds} of this run "
            f"give no interval; it takes {LEAST_ROUNDS} of each, as with --repeats {LEAST_ROUNDS}"
        )
    worse_end, better_end = found.low, found.high
    if direction == "lower":
        worse_end, better_end = better_end, worse_end
    if _past(better_end, limit, direction):
        return "regression", ""
    if not _past(worse_end, limit, direction):
        return "pass", ""
    return "inconclusive", _advice(a, b, limit)


def _past(ratio: float, limit: float, direction: Direction) -> bool:
    if direction == "higher":
        return ratio < limit * (1 - _ROUNDING)
    return ratio > limit * (1 + _ROUNDING)


def _advice(a: Sequence[float], b: Sequence[float], limit: float) -> str:
    """How many rounds would clear an engine that has not changed at all."""
    of_a, of_b = (stdev(math.log(value) for value in side) for side in (a, b))
    told = f"rounds vary by {of_b:.1%} here and {of_a:.1%} in the baseline"
    spread = math.hypot(of_a, of_b)
    if limit == 1:
        return f"{told}, and nothing may be lost; allow more than 0%"
    rounds = rounds_needed(1.0, spread, beyond=limit, confidence=CONFIDENCE)
    if rounds is None:
        return f"{told}, which no sensible number of rounds makes up for; widen the limit"
    if rounds <= min(len(a), len(b)):
        return f"{told}, and the ratio is close to the limit; measure more rounds"
    return f"{told}; {rounds} rounds of each would clear an unchanged engine 19 times in 20"
