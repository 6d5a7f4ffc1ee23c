"""Shares over many simulated runs: how often equal engines are told apart, and unequal ones found.

Counts what `harness.calibration.simulated` gives; decides nothing.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import variance
from typing import Final

from harness.calibration.simulated import METRICS, Noise, is_separable, simulate_runs
from harness.looks import LOOKS
from harness.results.saturation import MAIN_SATURATED
from harness.statistics import CONFIDENCE, rounds_needed

ALARM: Final = 1 - CONFIDENCE
SLOWER: Final = 1 / 0.9  # times as long: 10% less throughput
_SLACK_SIGMAS: Final = 2.33  # one-sided, 1 in 100
_PILOT_RUNS: Final = 50


@dataclass(frozen=True, slots=True)
class FalseAlarms:
    """Shares of runs of equal engines that were called separable.

    `after[rounds, metric]` for runs of so many rounds; `until_ci` for runs that ended at a look,
    with `ended_after[rounds]` the share that ended there.
    """

    runs: int
    after: Mapping[tuple[int, str], float]
    until_ci: float
    ended_after: Mapping[int, float]


@dataclass(frozen=True, slots=True)
class Power:
    """A slow-down by a tenth: `rounds` is what the noise of equal engines asks for."""

    runs: int
    log_std: float
    rounds: int
    found: float


def most_share(expected: float, runs: int) -> float:
    """What a share of `expected` may come out as in so many runs: 1 time in 100 it is more."""
    return expected + _SLACK_SIGMAS * math.sqrt(expected * (1 - expected) / runs)


def least_share(expected: float, runs: int) -> float:
    return expected - _SLACK_SIGMAS * math.sqrt(expected * (1 - expected) / runs)


def false_alarms(noise: Noise, runs: int, *, until_ci: float, seed: int) -> FalseAlarms:
    alarms: Counter[tuple[int, str]] = Counter()
    ends: Counter[int] = Counter()
    at_looks = 0
    for run in simulate_runs(noise, runs, LOOKS[-1], seed=seed):
        for rounds in LOOKS:
            compared = run.compared(rounds)
            alarms.update((rounds, metric) for metric in METRICS if is_separable(compared[metric]))
        ended, compared = run.until_narrow(until_ci)
        ends[ended] += 1
        at_looks += is_separable(compared[MAIN_SATURATED])
    return FalseAlarms(
        runs=runs,
        after={(n, metric): alarms[n, metric] / runs for n in LOOKS for metric in METRICS},
        until_ci=at_looks / runs,
        ended_after={n: ends[n] / runs for n in LOOKS},
    )


def power(noise: Noise, runs: int, *, seed: int) -> Power:
    """Asks equal engines for their noise, as `cbbench calibrate` does, then plants a slow-down."""
    log_std = _spread(noise, seed)
    rounds = rounds_needed(1 / SLOWER, log_std)
    assert rounds is not None
    slowed = simulate_runs(noise, runs, rounds, seed=seed + 1, slower=SLOWER)
    found = sum(run.compared(rounds)[MAIN_SATURATED].answer == "worse" for run in slowed)
    return Power(runs, log_std, rounds, found / runs)


def _spread(noise: Noise, seed: int) -> float:
    """Of one round's log ratio, pooled within runs of equal engines."""
    variances = []
    for run in simulate_runs(noise, _PILOT_RUNS, LOOKS[1], seed=seed):
        values = [
            [result.output_throughput_tok_s or 0.0 for _, result in of_round]
            for of_round in run.rounds
        ]
        variances.append(variance(math.log(b / a) for a, b in values))
    return math.sqrt(sum(variances) / len(variances))
