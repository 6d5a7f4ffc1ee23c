"""What several rounds say: a comparison paired by round, and a summary of one engine's rounds.

The interval is a paired t on the logarithms of the ratios, given from five rounds on: below that
neither it nor a bootstrap keeps its promise, so the ratio stands alone. No metric is named here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median, stdev
from typing import Final, Literal

from scipy.special import stdtrit

Answer = Literal["better", "worse", "not separable"]
Direction = Literal["higher", "lower"]

LEAST_ROUNDS: Final = 5
_CONFIDENCE: Final = 0.95
_POWER: Final = 0.8
_ROUNDING: Final = 1e-9  # equal values may differ in their last bits


@dataclass(frozen=True, slots=True)
class PairedRatio:
    """engine / baseline over rounds. `low`, `high`, `answer` and `detectable` need five rounds.

    `ratio` is the geometric mean of the rounds' ratios. A round without both values is left out and
    counted in `note`; there is no ratio when none has both, or when one measured 0. `detectable` is
    the smallest factor away from 1, either way, that so many rounds of this spread would have shown
    four times in five.
    """

    rounds: int
    ratio: float | None
    low: float | None = None
    high: float | None = None
    answer: Answer | None = None
    detectable: float | None = None
    note: str = ""


@dataclass(frozen=True, slots=True)
class Pooled:
    """One engine's value over rounds: the median and the range, n rounds that had a value."""

    n: int
    median: float | None
    lowest: float | None
    highest: float | None


def compare_rounds(
    baseline: Sequence[float | None], engine: Sequence[float | None], direction: Direction
) -> PairedRatio:
    """`baseline[i]` and `engine[i]` are of the same round; `direction` says which way is good."""
    pairs = [
        (a, b) for a, b in zip(baseline, engine, strict=True) if a is not None if b is not None
    ]
    left_out = len(baseline) - len(pairs)
    if not pairs:
        return PairedRatio(0, None, note="no round has both values")
    note = f"{left_out} rounds without both values left out" if left_out else ""
    if any(min(pair) <= 0 for pair in pairs):
        zero = "; ".join(filter(None, ("a round measured 0", note)))
        return PairedRatio(len(pairs), None, note=zero)
    logs = [math.log(b / a) for a, b in pairs]
    mean = fmean(logs)
    if len(logs) < LEAST_ROUNDS:
        few = "one round" if len(logs) == 1 else f"{len(logs)} rounds, no interval"
        return PairedRatio(len(logs), math.exp(mean), note="; ".join(filter(None, (few, note))))
    half, detectable = _reach(logs)
    low, high = math.exp(mean - half), math.exp(mean + half)
    answer = _answer(low, high, direction)
    return PairedRatio(len(logs), math.exp(mean), low, high, answer, math.exp(detectable), note)


def pool_rounds(values: Sequence[float | None]) -> Pooled:
    known = [value for value in values if value is not None]
    if not known:
        return Pooled(0, None, None, None)
    return Pooled(len(known), median(known), min(known), max(known))


def _reach(logs: Sequence[float]) -> tuple[float, float]:
    """Half the interval's width, and the detectable effect, both on the log scale."""
    freedom = len(logs) - 1
    error = stdev(logs) / math.sqrt(len(logs))
    in_doubt = float(stdtrit(freedom, (1 + _CONFIDENCE) / 2))
    in_power = float(stdtrit(freedom, _POWER))
    return in_doubt * error, (in_doubt + in_power) * error


def _answer(low: float, high: float, direction: Direction) -> Answer:
    if low <= 1 + _ROUNDING and high >= 1 - _ROUNDING:
        return "not separable"
    return "better" if (low > 1) == (direction == "higher") else "worse"
