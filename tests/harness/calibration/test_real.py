"""Figures of real runs of an engine against itself: alarms, noise, rounds, a planted slow-down."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from scipy import stats

from harness.calibration.real import AARun, aa_run, calibrate, most_false_alarms
from harness.calibration.text import calibration_lines
from harness.results.file import close_run
from harness.results.values import Comparison
from harness.statistics import compare_rounds


def aa(logs: Sequence[float]) -> AARun:
    """Rounds with these log ratios over a baseline that goes up and down."""
    baseline = tuple(100.0 + 7 * (number % 3) for number in range(len(logs)))
    engine = tuple(a * math.exp(log) for a, log in zip(baseline, logs, strict=True))
    paired = compare_rounds(baseline, engine, "higher")
    compared = Comparison(
        kind="engines", load="all-at-once", request_class=None,
        metric="output_throughput_tok_s", direction="higher", baseline="a", engine="b",
        baseline_value=None, engine_value=None, rounds=len(logs), ratio=paired.ratio,
        low=paired.low, high=paired.high, answer=paired.answer, detectable=paired.detectable,
        note="",
    )  # fmt: skip
    return AARun(compared, baseline, engine, cells=2 * len(logs), suspect=1)


def runs_of(spread: float, between: float = 0.0, runs: int = 20, rounds: int = 8) -> list[AARun]:
    rng = np.random.default_rng(4)
    return [aa(list(rng.normal(rng.normal(0.0, between), spread, rounds))) for _ in range(runs)]


@pytest.mark.parametrize(("runs", "most"), [(1, 1), (5, 1), (20, 3), (100, 10), (1000, 64)])
def test_twenty_runs_may_raise_three_alarms(runs, most):
    assert most_false_alarms(runs) == most


def test_the_spread_is_that_within_runs_and_a_shifted_run_does_not_widen_it():
    logs = [-0.02, -0.01, 0.0, 0.01, 0.02]
    found = calibrate([aa(logs), aa([0.3 + log for log in logs])])
    assert found.log_std == pytest.approx(math.sqrt(0.00025))
    assert found.between_std == pytest.approx(0.3 / math.sqrt(2))
    assert found.p_between < 1e-6
    assert (found.runs, found.separable, found.cells, found.suspect) == (2, 1, 20, 2)
    assert "more than their rounds explain" in "\n".join(calibration_lines(found))


def test_runs_that_differ_as_their_rounds_do_are_no_surprise():
    found = calibrate(runs_of(0.03))
    assert found.p_between > 0.05
    assert found.separable <= found.most_expected == 3
    assert "as much as their rounds explain" in "\n".join(calibration_lines(found))


def test_the_chance_is_that_of_an_analysis_of_variance():
    runs = runs_of(0.02, between=0.01, runs=6)
    expected = stats.f_oneway(*(run.logs for run in runs)).pvalue
    assert calibrate(runs).p_between == pytest.approx(expected)


def test_what_differs_from_process_to_process_shows_between_runs_and_as_alarms():
    found = calibrate(runs_of(0.01, between=0.03))
    assert found.p_between < 0.01
    assert found.separable > found.most_expected


def test_each_run_is_held_against_each_other_as_a_gate_would():
    gated = calibrate(runs_of(0.01)).gated
    assert gated.checks == 20 * 19
    assert gated.unchanged.get("regression", 0) == gated.planted.get("pass", 0) == 0
    assert min(gated.unchanged["pass"], gated.planted["regression"]) > 0.98 * 380
    told = "\n".join(calibration_lines(calibrate(runs_of(0.01))))
    assert "as a gate of 5%, of 380 checks: unchanged, 0 called a regression and" in told


def test_a_run_that_was_slower_as_a_whole_shows_as_the_gates_alarms():
    quick, slow = aa([0.0, 0.01, -0.01, 0.005, -0.005]), aa([-0.2, -0.21, -0.19, -0.2, -0.2])
    assert calibrate([quick, slow]).gated.unchanged == {"regression": 1, "pass": 1}
    assert calibrate([quick]).gated is None


def test_a_slow_down_planted_into_the_values_is_found_with_the_rounds_asked_for():
    found = calibrate(runs_of(0.03))
    assert (found.worse.rounds, found.worse.found) == (5, 20)
    assert found.past_limit.rounds == 7
    assert found.past_limit.found >= 18
    told = "\n".join(calibration_lines(found))
    assert "a slow-down of 10%, called worse: 5 rounds find it with 95%; planted in these" in told


def test_noisy_rounds_ask_for_more_than_were_run_and_that_is_said():
    found = calibrate(runs_of(0.2))
    assert found.worse.rounds > 8
    assert found.worse.found is None
    assert "these runs had fewer" in "\n".join(calibration_lines(found))
    hopeless = calibrate(runs_of(2.0))
    assert hopeless.worse.rounds is None
    assert "no number of rounds" in "\n".join(calibration_lines(hopeless))


def test_values_are_those_of_the_rounds_that_were_compared(player):
    for number in range(1, 7):
        for engine in ("a", "b"):
            end_s = 1.0 + number / 10 + (0.05 * number if engine == "b" else 0.0)
            events = player.answer("r", [end_s / 2, end_s])
            player.record([player.request("r", out=2)], events, engine=engine, number=number)
    run = close_run(player.folder, {"engine_order": ["a", "b"]}, {})
    found = aa_run(run)
    assert found.baseline == pytest.approx([2 / (1 + n / 10) for n in range(1, 7)])
    assert found.compared.ratio == pytest.approx(math.exp(sum(found.logs) / 6))
    assert (found.cells, found.suspect) == (12, 0)


@pytest.mark.parametrize("rounds", [1, 4])
def test_a_run_without_an_interval_is_none(player, rounds):
    for number in range(1, rounds + 1):
        for engine in ("a", "b"):
            events = player.answer("r", [1.0, 2.0])
            player.record([player.request("r", out=2)], events, engine=engine, number=number)
    assert aa_run(close_run(player.folder, {"engine_order": ["a", "b"]}, {})) is None
