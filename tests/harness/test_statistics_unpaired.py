"""Rounds that do not belong together, and how many rounds an effect needs."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from harness.looks import LOOK_CONFIDENCE
from harness.statistics import (
    compare_rounds,
    compare_unpaired,
    highest_expected,
    power_of,
    rounds_needed,
)

A = [10.0, 11.0, 10.5, 9.8, 10.2]
B = [12.0, 14.0, 11.5, 12.6, 13.0, 12.2]


def test_the_interval_is_welchs_on_the_logarithms():
    found = compare_unpaired(A, B, "higher")
    expected = stats.ttest_ind(np.log(B), np.log(A), equal_var=False).confidence_interval(0.95)
    assert (math.log(found.low), math.log(found.high)) == pytest.approx(tuple(expected))
    assert found.ratio == pytest.approx(stats.gmean(B) / stats.gmean(A))
    assert (found.baseline_rounds, found.engine_rounds, found.answer) == (5, 6, "better")
    assert found.detectable > 1
    assert compare_unpaired(A, B, "lower").answer == "worse"


def test_unpaired_rounds_do_not_share_their_noise():
    slow_day = [10.0, 50.0, 20.0, 90.0, 30.0]
    faster = [1.1 * value for value in slow_day]
    assert compare_rounds(slow_day, faster, "higher").answer == "better"
    assert compare_unpaired(slow_day, faster, "higher").answer == "not separable"


@pytest.mark.parametrize(
    ("baseline", "engine", "note"),
    [
        ([None], [1.0], "no value of baseline; 1 rounds without a value left out"),
        ([1.0], [], "no value of engine"),
        ([], [], "no value of baseline and engine"),
        ([0.0] * 5, [1.0] * 5, "a round measured 0"),
        ([1.0] * 5, [1.0] * 4 + [0.0], "a round measured 0"),
    ],
)
def test_without_values_or_with_a_zero_there_is_no_ratio(baseline, engine, note):  # U1
    found = compare_unpaired(baseline, engine, "higher")
    assert (found.ratio, found.low, found.answer, found.note) == (None, None, None, note)


def test_five_rounds_are_needed_on_either_side():
    for one, other in ((A[:4], B), (A, B[:4]), (A, [*B[:4], None])):
        found = compare_unpaired(one, other, "higher")
        assert (found.low, found.answer) == (None, None)
        assert "4 rounds, no interval" in found.note
        assert found.ratio > 1
    assert compare_unpaired([2.0], [3.0], "higher").note == "one round"


def test_equal_constant_rounds_are_not_separable():
    found = compare_unpaired([2.0] * 5, [2.0] * 5, "higher")
    assert (found.ratio, found.low, found.high, found.answer) == (1.0, 1.0, 1.0, "not separable")


def test_a_wider_interval_contains_the_narrower_one():
    wide = compare_rounds(A, B[:5], "higher", LOOK_CONFIDENCE)
    narrow = compare_rounds(A, B[:5], "higher")
    assert wide.low < narrow.low < narrow.ratio == wide.ratio < narrow.high < wide.high
    wide, narrow = compare_unpaired(A, B, "higher", 0.99), compare_unpaired(A, B, "higher")
    assert wide.low < narrow.low < narrow.high < wide.high


@pytest.mark.parametrize("beyond", [1.0, 0.95])
def test_the_stated_power_is_that_of_simulated_rounds(beyond):
    rng = np.random.default_rng(3)
    spread, rounds, runs = 0.05, 8, 2000
    found = 0
    for _ in range(runs):
        engine = list(0.9 * np.exp(rng.normal(0, spread, rounds)))
        found += compare_rounds([1.0] * rounds, engine, "higher").high < beyond
    expected = power_of(0.9, spread, rounds, beyond=beyond, confidence=0.95)
    assert found / runs == pytest.approx(expected, abs=3 * math.sqrt(0.25 / runs))


def test_rounds_needed_grow_with_the_noise_and_shrink_with_the_effect():
    needed = [rounds_needed(0.9, spread) for spread in (0.01, 0.05, 0.07, 0.1)]
    assert needed == [5, 6, 8, 14]
    assert rounds_needed(0.5, 0.1) == 5
    assert rounds_needed(1.1, 0.05) == rounds_needed(1 / 1.1, 0.05)
    assert rounds_needed(0.9, 0.05, beyond=0.95) == 14
    assert rounds_needed(0.999, 1.0) is None
    enough, too_few = (power_of(0.9, 0.07, n, confidence=0.95) for n in (8, 7))
    assert too_few < 0.95 <= enough


def test_the_highest_expected_is_the_prediction_bound_of_one_more_value():
    logs = np.log(B)
    reach = stats.t.ppf(0.999, len(B) - 1) * logs.std(ddof=1) * math.sqrt(1 + 1 / len(B))
    assert highest_expected(B, 0.001) == pytest.approx(math.exp(logs.mean() + reach))


def test_the_highest_expected_needs_two_positive_values_and_is_never_infinite():
    assert highest_expected([1.0], 0.001) is None
    assert highest_expected([1.0, 0.0, 2.0], 0.001) is None
    assert highest_expected([2.0, 2.0], 0.001) == pytest.approx(2.0)
    assert highest_expected([1.0, 100.0], 0.001) < math.inf
