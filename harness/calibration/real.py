"""An engine against itself, in real runs: false alarms, and how noisy rounds are.

Pure figures from closed runs. From the noise of real rounds follows how many rounds a slow-down
needs; it is also planted into the very values, and looked for.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, variance
from typing import Final

from scipy.special import bdtrc, fdtrc

from harness.calibration.gated import Gated, gate_all
from harness.results.saturation import MAIN_SATURATED, main_comparisons
from harness.results.values import Comparison, RunFile
from harness.statistics import CONFIDENCE, compare_rounds, rounds_needed

PLANTED: Final = 0.9
LIMIT: Final = 0.95
POWER: Final = 0.95
_SURPRISE: Final = 0.025


@dataclass(frozen=True, slots=True)
class AARun:
    """One run of an engine against itself: the main comparison, and both values round by round."""

    compared: Comparison
    baseline: tuple[float, ...]
    engine: tuple[float, ...]
    cells: int
    suspect: int

    @property
    def ratios(self) -> list[float]:
        return [b / a for a, b in zip(self.baseline, self.engine, strict=True)]

    @property
    def logs(self) -> list[float]:
        return [math.log(ratio) for ratio in self.ratios]


@dataclass(frozen=True, slots=True)
class Planted:
    """A slow-down by a tenth: `rounds` find it with `POWER`; `found` of `runs` real runs did.

    `rounds` is `None` where a thousand do not; `found` is `None` where the runs had fewer rounds.
    """

    rounds: int | None
    found: int | None


@dataclass(frozen=True, slots=True)
class Calibration:
    """`log_std` is the spread of one round's log ratio within runs, `between_std` that of the runs'
    means; `p_between` the chance that rounds alone let runs differ so much. `worse` asks for an
    interval below 1, `past_limit` for one below `LIMIT`. `gated` are checks of one run's
    ratios against another's, with that limit.
    """

    runs: int
    cells: int
    suspect: int
    separable: int
    most_expected: int
    log_std: float
    between_std: float | None
    p_between: float | None
    worse: Planted
    past_limit: Planted
    gated: Gated | None


def aa_run(run: RunFile) -> AARun | None:
    """`None` where a run has no interval of throughput at saturation, or a round has no value."""
    found = main_comparisons(run, run.labels())
    if not found or found[0].answer is None or found[0].metric != MAIN_SATURATED:
        return None
    compared = found[0]
    sides = [
        [cell.output_throughput_tok_s for cell in run.measured(label, compared.load)]
        for label in (compared.baseline, compared.engine)
    ]
    a, b = ([value for value in side if value] for side in sides)
    if not len(a) == len(b) == compared.rounds:
        return None
    suspect = sum(
        cell.verdict is not None and cell.verdict.status == "SUSPECT" for cell in run.results
    )
    return AARun(compared, tuple(a), tuple(b), len(run.results), suspect)


def calibrate(runs: Sequence[AARun]) -> Calibration:
    """Of one run or more, each with five rounds or more."""
    freedom = sum(len(run.logs) - 1 for run in runs)
    log_std = math.sqrt(sum((len(run.logs) - 1) * variance(run.logs) for run in runs) / freedom)
    between_std, p_between = _between(runs, log_std, freedom)
    return Calibration(
        runs=len(runs),
        cells=sum(run.cells for run in runs),
        suspect=sum(run.suspect for run in runs),
        separable=sum(run.compared.answer != "not separable" for run in runs),
        most_expected=most_false_alarms(len(runs)),
        log_std=log_std,
        between_std=between_std,
        p_between=p_between,
        worse=_planted(runs, log_std, 1.0),
        past_limit=_planted(runs, log_std, LIMIT),
        gated=gate_all([run.ratios for run in runs], LIMIT, PLANTED),
    )


def most_false_alarms(runs: int, share: float = 1 - CONFIDENCE) -> int:
    """More than so many come with a chance of at most 2.5%, if each comes with `share`."""
    return next(k for k in range(runs + 1) if k == runs or bdtrc(k, runs, share) <= _SURPRISE)


def _between(
    runs: Sequence[AARun], log_std: float, freedom: int
) -> tuple[float | None, float | None]:
    """The F test of whether processes differ by more than their rounds do."""
    if len(runs) < 2 or log_std == 0:
        return None, None
    means = [fmean(run.logs) for run in runs]
    rounds = len(runs) / sum(1 / len(run.logs) for run in runs)
    ratio = variance(means) * rounds / log_std**2
    return math.sqrt(variance(means)), float(fdtrc(len(runs) - 1, freedom, ratio))


def _planted(runs: Sequence[AARun], log_std: float, beyond: float) -> Planted:
    needed = rounds_needed(PLANTED, log_std, power=POWER, beyond=beyond) if log_std else None
    if needed is None or needed > min(len(run.logs) for run in runs):
        return Planted(needed, None)
    return Planted(needed, sum(_is_found(run, needed, beyond) for run in runs))


def _is_found(run: AARun, rounds: int, beyond: float) -> bool:
    slowed = [PLANTED * value for value in run.engine[:rounds]]
    high = compare_rounds(run.baseline[:rounds], slowed, "higher").high
    return high is not None and high < beyond
