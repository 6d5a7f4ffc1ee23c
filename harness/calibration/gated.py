"""What the regression gate would have said of real runs in which nothing had changed.

Each run stands once as the baseline of every other one. Only ratios to the other engine of the run
are held against each other: runs have other seeds, so their plain values differ anyway.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations

from harness.gate.decide import Outcome, decide
from harness.gate.limits import Limits


@dataclass(frozen=True, slots=True)
class Gated:
    """Of `checks`, how many had each outcome: unchanged, and with a slow-down planted."""

    checks: int
    unchanged: Mapping[Outcome, int]
    planted: Mapping[Outcome, int]


def gate_all(runs: Sequence[Sequence[float]], limit: float, planted: float) -> Gated | None:
    """`runs` hold a ratio a round, more is better; `limit` and `planted` are ratios.

    `None` of fewer than two runs.
    """
    if len(runs) < 2:
        return None
    limits = Limits(max_regression=1 - limit)
    unchanged: Counter[Outcome] = Counter()
    slowed: Counter[Outcome] = Counter()
    for before, after in permutations([tuple(run) for run in runs], 2):
        unchanged[decide(before, after, "higher", limits).outcome] += 1
        slower = tuple(planted * value for value in after)
        slowed[decide(before, slower, "higher", limits).outcome] += 1
    return Gated(unchanged.total(), unchanged, slowed)
