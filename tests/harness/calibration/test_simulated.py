"""Simulated rounds go through the code that judges real ones, and come out as stated."""

from __future__ import annotations

import math
from statistics import stdev

import numpy as np
import pytest

from harness.calibration.shares import (
    ALARM,
    SLOWER,
    false_alarms,
    least_share,
    most_share,
    power,
)
from harness.calibration.simulated import (
    BY_REQUEST,
    NOISES,
    Noise,
    SimulatedRun,
    is_separable,
    simulate_run,
    simulate_runs,
)
from harness.results.saturation import MAIN_SATURATED

DRIFTING = NOISES[1]
QUIET = Noise("quiet", round_std=0.3, cell_std=0.0, request_std=0.0)
FAST_RUNS = 120
SLOW_RUNS = 1000


def throughputs(run: SimulatedRun) -> list[list[float]]:
    return [[result.output_throughput_tok_s for _, result in pair] for pair in run.rounds]


def one_run(noise: Noise, rounds: int = 5, **changes: float) -> SimulatedRun:
    (run,) = simulate_runs(noise, 1, rounds, seed=3, **changes)
    return run


def test_a_seed_repeats_and_another_differs():
    first, again = (list(simulate_runs(DRIFTING, 2, 5, seed=3)) for _ in range(2))
    assert [throughputs(run) for run in first] == [throughputs(run) for run in again]
    assert throughputs(first[0]) != throughputs(first[1])


def test_what_a_round_does_to_both_engines_cancels():
    run = one_run(QUIET, slower=SLOWER)
    assert stdev(math.log(a) for a, _ in throughputs(run)) > 0.1
    found = run.compared(5)[MAIN_SATURATED]
    assert (found.low, found.high) == pytest.approx((0.9, 0.9))
    assert found.answer == "worse"
    assert run.compared(5)[BY_REQUEST].ratio == pytest.approx(1 / 0.9)


def test_drift_meets_cells_in_the_order_in_which_they_ran():
    """A drift that never fades moves both engines of a run alike, however long it is."""
    lasting = Noise("lasting", 0.0, 0.0, 0.0, drift_std=1.0, drift_keeps=1.0)
    assert one_run(lasting).compared(5)[MAIN_SATURATED].ratio == pytest.approx(1.0)
    fading = Noise("fading", 0.0, 0.0, 0.0, drift_std=1.0, drift_keeps=0.0)
    assert one_run(fading).compared(5)[MAIN_SATURATED].ratio != pytest.approx(1.0, abs=0.01)


def test_heavy_tails_have_the_stated_spread():
    rng = np.random.default_rng(5)
    for tails in (None, 5):
        noise = Noise("n", round_std=0.0, cell_std=0.1, request_std=0.0, tails=tails)
        run = simulate_run(noise, 600, rng)
        logs = [math.log(b / a) for a, b in throughputs(run)]
        assert stdev(logs) == pytest.approx(0.1 * math.sqrt(2), rel=0.15)


def test_rounds_are_added_until_the_interval_is_narrow():
    run = one_run(DRIFTING, rounds=20)
    ends = [run.until_narrow(until_ci)[0] for until_ci in (0.5, 0.05, 0.0001)]
    assert ends[0] == 5
    assert ends[0] < ends[1] <= ends[2] == 20
    assert run.until_narrow(0.5)[1][MAIN_SATURATED].confidence > 0.98


def test_equal_engines_are_rarely_told_apart():
    found = false_alarms(DRIFTING, FAST_RUNS, until_ci=0.05, seed=1)
    allowed = most_share(ALARM, FAST_RUNS)
    assert max(found.after.values()) <= allowed
    assert found.until_ci <= allowed
    assert sum(found.ended_after.values()) == pytest.approx(1.0)
    assert len([share for share in found.ended_after.values() if share]) >= 3
    assert sum(found.after.values()) > 0


def test_a_tenth_less_is_found_with_the_rounds_that_the_noise_asks_for():
    found = power(DRIFTING, FAST_RUNS, seed=1)
    assert 5 <= found.rounds <= 10
    assert found.found >= least_share(0.95, FAST_RUNS)


def test_slack_shrinks_with_the_number_of_runs():
    assert most_share(0.05, 2000) == pytest.approx(0.0614, abs=1e-3)
    assert most_share(0.05, 100) > most_share(0.05, 2000) > 0.05
    assert least_share(0.95, 100) < least_share(0.95, 2000) < 0.95


@pytest.mark.slow
@pytest.mark.parametrize("noise", NOISES, ids=[noise.name for noise in NOISES])
def test_shares_over_many_runs_are_the_stated_ones(noise):
    found = false_alarms(noise, SLOW_RUNS, until_ci=0.05, seed=2)
    assert max(*found.after.values(), found.until_ci) <= most_share(ALARM, SLOW_RUNS)
    assert power(noise, SLOW_RUNS, seed=2).found >= least_share(0.95, SLOW_RUNS)


def test_separable_means_better_or_worse_and_not_an_interval_that_is_missing():
    run = one_run(QUIET, slower=SLOWER)
    assert is_separable(run.compared(5)[MAIN_SATURATED])
    assert not is_separable(run.compared(4)[MAIN_SATURATED])
    assert not is_separable(one_run(QUIET).compared(5)[MAIN_SATURATED])
