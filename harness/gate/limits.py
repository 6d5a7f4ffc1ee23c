"""How much worse a metric may become, as it is typed. Decides nothing."""

from __future__ import annotations

import math
from dataclasses import dataclass

from engines.api import CbbenchError
from harness.statistics import Direction


@dataclass(frozen=True, slots=True)
class Limits:
    """`max_regression` is a fraction of the baseline: 0.05 lets throughput fall to 95%, latency
    rise to 105%. `max_increase_abs` is for what the baseline measured as 0, in the metric's unit.
    """

    max_regression: float
    max_increase_abs: float = 0.0

    def factor(self, direction: Direction) -> float:
        """The ratio to the baseline at which a regression begins."""
        return 1 - self.max_regression if direction == "higher" else 1 + self.max_regression


def percentage(option: str, text: str) -> float:
    """`5%` as 0.05. The sign is asked for: 0.5 may be a half or half a percent."""
    expected = f"{option} is {text!r}; expected a percentage >= 0 with its sign, such as 5%"
    if not text.strip().endswith("%"):
        raise CbbenchError(expected)
    value = _finite(text.strip()[:-1])
    if value is None:
        raise CbbenchError(expected)
    return value / 100


def amount(option: str, text: str) -> float:
    """A finite number >= 0."""
    value = _finite(text)
    if value is None:
        raise CbbenchError(f"{option} is {text!r}; expected a number >= 0")
    return value


def _finite(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 0 <= value < math.inf else None
