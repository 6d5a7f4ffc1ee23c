"""An engine's values divided by a reference engine's of the same rounds.

What a shared machine does to both of them alike falls out, so that runs of other days compare.
"""

from __future__ import annotations

from harness.compare.case import Case, Values


def relative_values(case: Case, reference: Case, metric: str) -> Values:
    """A ratio a round of `case`; `None` where either has no value or the reference measured 0."""
    told = reference.values.get(metric)
    if told is None or metric not in case.values:
        return ()
    of_round = dict(zip(reference.rounds, told, strict=True))
    return tuple(
        _ratio(value, of_round.get(number))
        for number, value in zip(case.rounds, case.values[metric], strict=True)
    )


def _ratio(value: float | None, reference: float | None) -> float | None:
    return None if value is None or not reference else value / reference
