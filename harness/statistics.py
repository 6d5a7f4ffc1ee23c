"""What several rounds say: engines compared, paired or not, and one engine's rounds summed up.

Intervals are Student's t on logarithms of ratios, given from five rounds on: below that neither
they nor a bootstrap keep their promise, so the ratio stands alone. No metric is named here, and
nothing is decided but on which side of 1 an interval lies; limits are the regression gate's.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median, stdev, variance
from typing import Final, Literal

from scipy.special import nctdtr, stdtrit

Answer = Literal["better", "worse", "not separable"]
Direction = Literal["higher", "lower"]

LEAST_ROUNDS: Final = 5
CONFIDENCE: Final = 0.95
_POWER: Final = 0.8
_ROUNDING: Final = 1e-9  # equal values may differ in their last bits
_MOST_ROUNDS: Final = 1000
_LARGEST_LOG: Final = 700.0  # exp() of more is no float


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
class UnpairedRatio:
    """The same of rounds that do not belong together, such as a stored baseline's and today's.

    The interval knows the spread of rounds within either run and nothing of what differs between
    two runs as a whole (another day, another temperature), so it is narrower than the truth.
    """

    baseline_rounds: int
    engine_rounds: int
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
    baseline: Sequence[float | None],
    engine: Sequence[float | None],
    direction: Direction,
    confidence: float = CONFIDENCE,
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
        return PairedRatio(len(pairs), None, note=_joined("a round measured 0", note))
    logs = [math.log(b / a) for a, b in pairs]
    mean = fmean(logs)
    if len(logs) < LEAST_ROUNDS:
        return PairedRatio(len(logs), math.exp(mean), note=_joined(_few(len(logs)), note))
    error, freedom = stdev(logs) / math.sqrt(len(logs)), len(logs) - 1.0
    low, high, detectable = _interval(mean, error, freedom, confidence)
    answer = _answer(low, high, direction)
    return PairedRatio(len(logs), math.exp(mean), low, high, answer, detectable, note)


def compare_unpaired(
    baseline: Sequence[float | None],
    engine: Sequence[float | None],
    direction: Direction,
    confidence: float = CONFIDENCE,
) -> UnpairedRatio:
    """Welch's t on the logarithms; the interval needs five rounds with a value on either side."""
    a = [value for value in baseline if value is not None]
    b = [value for value in engine if value is not None]
    left_out = len(baseline) + len(engine) - len(a) - len(b)
    note = f"{left_out} rounds without a value left out" if left_out else ""
    if not a or not b:
        missing = " and ".join(name for name, side in (("baseline", a), ("engine", b)) if not side)
        return UnpairedRatio(len(a), len(b), None, note=_joined(f"no value of {missing}", note))
    if min(*a, *b) <= 0:
        return UnpairedRatio(len(a), len(b), None, note=_joined("a round measured 0", note))
    logs_a, logs_b = [math.log(value) for value in a], [math.log(value) for value in b]
    mean = fmean(logs_b) - fmean(logs_a)
    fewest = min(len(a), len(b))
    if fewest < LEAST_ROUNDS:
        return UnpairedRatio(len(a), len(b), math.exp(mean), note=_joined(_few(fewest), note))
    error, freedom = _welch(logs_a, logs_b)
    low, high, detectable = _interval(mean, error, freedom, confidence)
    answer = _answer(low, high, direction)
    return UnpairedRatio(len(a), len(b), math.exp(mean), low, high, answer, detectable, note)


def pool_rounds(values: Sequence[float | None]) -> Pooled:
    known = [value for value in values if value is not None]
    if not known:
        return Pooled(0, None, None, None)
    return Pooled(len(known), median(known), min(known), max(known))


def highest_expected(others: Sequence[float], chance: float) -> float | None:
    """What one more value of the same kind exceeds with `chance`, log-normal; `None` below two."""
    if len(others) < 2 or min(others) <= 0:
        return None
    logs = [math.log(value) for value in others]
    reach = float(stdtrit(len(logs) - 1.0, 1 - chance)) * stdev(logs) * math.sqrt(1 + 1 / len(logs))
    return math.exp(min(fmean(logs) + reach, _LARGEST_LOG))


def power_of(
    factor: float, log_std: float, rounds: int, *, beyond: float = 1.0, confidence: float
) -> float:
    """How often a paired interval lies wholly past `beyond`, on the side of a true `factor`.

    `log_std` is the spread of one round's log ratio. From the noncentral t distribution.
    """
    freedom = rounds - 1.0
    critical = float(stdtrit(freedom, (1 + confidence) / 2))
    distance = abs(math.log(factor / beyond)) * math.sqrt(rounds) / log_std
    return 1 - float(nctdtr(freedom, distance, critical))


def rounds_needed(
    factor: float,
    log_std: float,
    *,
    power: float = 0.95,
    beyond: float = 1.0,
    confidence: float = CONFIDENCE,
) -> int | None:
    """The fewest rounds with that power, five or more; `None` beyond a thousand."""
    for rounds in range(LEAST_ROUNDS, _MOST_ROUNDS + 1):
        if power_of(factor, log_std, rounds, beyond=beyond, confidence=confidence) >= power:
            return rounds
    return None


def _welch(a: Sequence[float], b: Sequence[float]) -> tuple[float, float]:
    """Standard error of a difference of means, and Welch-Satterthwaite degrees of freedom."""
    of_a, of_b = variance(a) / len(a), variance(b) / len(b)
    if of_a + of_b == 0:
        return 0.0, len(a) + len(b) - 2.0
    freedom = (of_a + of_b) ** 2 / (of_a**2 / (len(a) - 1) + of_b**2 / (len(b) - 1))
    return math.sqrt(of_a + of_b), freedom


def _interval(
    mean: float, error: float, freedom: float, confidence: float
) -> tuple[float, float, float]:
    """Low, high and the detectable factor, from a mean and its error on the log scale."""
    half = float(stdtrit(freedom, (1 + confidence) / 2)) * error
    in_power = float(stdtrit(freedom, _POWER)) * error
    return math.exp(mean - half), math.exp(mean + half), math.exp(half + in_power)


def _answer(low: float, high: float, direction: Direction) -> Answer:
    if low <= 1 + _ROUNDING and high >= 1 - _ROUNDING:
        return "not separable"
    return "better" if (low > 1) == (direction == "higher") else "worse"


def _few(rounds: int) -> str:
    return "one round" if rounds == 1 else f"{rounds} rounds, no interval"


def _joined(*notes: str) -> str:
    return "; ".join(filter(None, notes))
