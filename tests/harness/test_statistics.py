"""Paired comparisons: intervals only where they hold, three answers, the detectable effect."""

from __future__ import annotations

import math

import numpy as np
import pytest

from harness.statistics import compare_rounds, pool_rounds

ONES = [1.0] * 5


def test_one_round_and_few_rounds_give_a_ratio_alone():
    one = compare_rounds([2.0], [3.0], "higher")
    assert (one.ratio, one.low, one.answer, one.note) == (
        pytest.approx(1.5),
        None,
        None,
        "one round",
    )
    three = compare_rounds([1.0] * 3, [1.0, 2.0, 4.0], "higher")
    assert three.ratio == pytest.approx(2.0)
    assert (three.answer, three.note) == (None, "3 rounds, no interval")


def test_five_rounds_give_the_paired_t_interval_on_logs():
    logs = [0.1, 0.2, 0.3, 0.4, 0.5]
    paired = compare_rounds(ONES, [math.exp(x) for x in logs], "higher")
    half = 2.7764451052 * math.sqrt(0.025) / math.sqrt(5)
    assert paired.ratio == pytest.approx(math.exp(0.3))
    assert paired.low == pytest.approx(math.exp(0.3 - half))
    assert paired.high == pytest.approx(math.exp(0.3 + half))
    assert paired.answer == "better"
    assert paired.detectable == pytest.approx(
        math.exp(half + 0.9409646 * math.sqrt(0.005)), rel=1e-4
    )


@pytest.mark.parametrize(
    ("factor", "direction", "answer"),
    [
        (1.1, "higher", "better"),
        (0.9, "higher", "worse"),
        (1.1, "lower", "worse"),
        (0.9, "lower", "better"),
        (1.0, "lower", "not separable"),
    ],
)
def test_direction_decides_what_is_better(factor, direction, answer):  # U2
    noise = [0.99, 1.0, 1.01, 1.0, 1.0]
    assert compare_rounds(ONES, [factor * n for n in noise], direction).answer == answer


def test_pairing_by_round_takes_the_rounds_own_noise_out():
    slow_day = [10.0, 50.0, 20.0, 90.0, 30.0]
    paired = compare_rounds(slow_day, [1.1 * v for v in slow_day], "higher")
    assert paired.answer == "better"
    assert paired.low == pytest.approx(1.1)


@pytest.mark.parametrize("side", ["baseline", "engine"])
def test_a_measured_zero_takes_the_ratio_and_is_never_dropped(side):  # U1
    zero = [0.0, *ONES]
    values = (zero, [2.0] * 6) if side == "baseline" else ([2.0] * 6, zero)
    paired = compare_rounds(*values, "higher")
    assert (paired.rounds, paired.ratio, paired.low, paired.answer) == (6, None, None, None)
    assert paired.note == "a round measured 0"
    assert compare_rounds([0.0, None], [5.0, 1.0], "lower").note == (
        "a round measured 0; 1 rounds without both values left out"
    )


def test_missing_values_are_left_out_and_said():  # U1
    assert compare_rounds([None], [5.0], "lower").ratio is None
    partly = compare_rounds([1.0, None], [2.0, 3.0], "higher")
    assert (partly.ratio, partly.rounds) == (2.0, 1)
    assert "1 rounds without both values" in partly.note


def test_false_alarms_stay_near_five_in_a_hundred():
    rng = np.random.default_rng(7)
    runs = 400
    alarms = 0
    for _ in range(runs):
        a, b = np.exp(rng.normal(0, 0.1, 5)), np.exp(rng.normal(0, 0.1, 5))
        alarms += compare_rounds(list(a), list(b), "higher").answer != "not separable"
    assert 0.02 <= alarms / runs <= 0.08


def test_pooled_rounds_give_median_and_range():
    pooled = pool_rounds([3.0, None, 1.0, 2.0])
    assert (pooled.n, pooled.median, pooled.lowest, pooled.highest) == (3, 2.0, 1.0, 3.0)
    assert pool_rounds([None]).median is None


@pytest.mark.parametrize("direction", ["higher", "lower"])
@pytest.mark.parametrize("swapped", [False, True])
def test_values_that_differ_in_their_last_bits_are_not_separable(direction, swapped):
    one, other = [0.3] * 5, [0.1 + 0.2] * 5
    values = (other, one) if swapped else (one, other)
    assert one != other
    assert compare_rounds(*values, direction).answer == "not separable"
