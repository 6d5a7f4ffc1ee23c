"""What dropped requests mean where less is better: who drops the slow ones gains nothing.

Latencies are of the requests that were ok. Where more than 1% were not, the same quantile with
those as infinite decides too, and nothing passes.
"""

from __future__ import annotations

import math
from dataclasses import replace

from harness.compare.case import Case
from harness.gate.decide import Decision
from harness.gate.soundness import LEAST_OK
from harness.statistics import Direction


def with_dropped(decision: Decision, case: Case, metric: str, direction: Direction) -> Decision:
    """`decision` on the requests that were ok, unless those that were not speak against a pass."""
    share = case.ok_share
    if direction == "higher" or share is None or share >= LEAST_OK:
        return decision
    if decision.outcome != "pass":
        return decision
    told = f"{1 - share:.1%} of the requests were not ok"
    values = case.with_failures.get(metric, ())
    if values and all(value is not None and math.isinf(value) for value in values):
        reason = f"{told}, and with those as infinite it is infinite in every round"
        return replace(decision, outcome="regression", reason=reason)
    reason = f"{told}, and this is of the others alone; see why"
    return replace(decision, outcome="inconclusive", reason=reason)
