"""What a calibration says, as plain lines. Computes nothing."""

from __future__ import annotations

from harness.calibration.gated import Gated
from harness.calibration.real import LIMIT, PLANTED, Calibration, Planted
from harness.show.report.words import number

_SLOWER = f"{1 - PLANTED:.0%}"


def calibration_lines(found: Calibration) -> list[str]:
    """The false alarms first, then the noise and what it takes to see a slow-down in it."""
    return [
        f"called separable: {found.separable} of {found.runs} runs "
        f"(5% are expected; more than {found.most_expected} would be a surprise)",
        f"cells marked SUSPECT: {found.suspect} of {found.cells}",
        f"spread of one round's ratio: {_spread(found.log_std)}",
        *_between(found),
        f"a slow-down of {_SLOWER}, called worse: {_planted(found.worse, found.runs)}",
        f"a slow-down of {_SLOWER}, shown to be past {1 - LIMIT:.0%}: "
        f"{_planted(found.past_limit, found.runs)}",
        *_gated(found.gated),
    ]


def _spread(log_std: float) -> str:
    return f"{number(log_std * 100)}% (standard deviation of its logarithm)"


def _between(found: Calibration) -> list[str]:
    if found.between_std is None or found.p_between is None:
        return []
    explained = "as much as" if found.p_between > 0.05 else "more than"
    return [
        f"spread of whole runs' ratios: {_spread(found.between_std)}, {explained} their rounds "
        f"explain (p = {found.p_between:.2g})"
    ]


def _gated(gated: Gated | None) -> list[str]:
    """Counts of all checks; they share runs, so they are not that many independent ones."""
    if gated is None:
        return []
    return [
        f"each run's ratios against each other's, as a gate of {1 - LIMIT:.0%}, of "
        f"{gated.checks} checks: unchanged, "
        f"{gated.unchanged.get('regression', 0)} called a regression and "
        f"{gated.unchanged.get('pass', 0)} passed; {_SLOWER} slower, "
        f"{gated.planted.get('regression', 0)} called and {gated.planted.get('pass', 0)} passed"
    ]


def _planted(planted: Planted, runs: int) -> str:
    if planted.rounds is None:
        return "no number of rounds up to a thousand is enough"
    needed = f"{planted.rounds} rounds find it with 95%"
    if planted.found is None:
        return f"{needed}; these runs had fewer"
    return f"{needed}; planted in these values it was found in {planted.found} of {runs} runs"
