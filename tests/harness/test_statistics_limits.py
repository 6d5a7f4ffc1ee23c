"""Comparisons at the number of rounds from which they have an interval, and on uneven rounds."""

from __future__ import annotations

import math

import pytest

from harness.statistics import compare_rounds


@pytest.mark.parametrize(("rounds", "has_interval"), [(4, False), (5, True)])
def test_an_interval_takes_five_rounds(rounds, has_interval):
    engine = [1.5, 1.6, 1.4, 1.5, 1.55][:rounds]
    paired = compare_rounds([1.0] * rounds, engine, "higher")
    given = (paired.low, paired.high, paired.answer, paired.detectable)
    assert all((value is not None) is has_interval for value in given)
    assert paired.note == ("" if has_interval else "4 rounds, no interval")


def test_a_round_without_a_value_counts_for_no_interval():
    paired = compare_rounds([1.0] * 5, [2.0, 2.0, 2.0, 2.0, None], "higher")
    assert (paired.rounds, paired.low, paired.answer) == (4, None, None)
    assert "4 rounds, no interval" in paired.note
    assert "1 rounds without both values left out" in paired.note


def test_the_ratio_is_the_geometric_mean_and_no_median():
    assert compare_rounds([1.0] * 3, [1.0, 1.0, 8.0], "lower").ratio == pytest.approx(2.0)
    uneven = [math.exp(x) for x in (0.0, 0.0, 0.0, 0.0, 1.0)]
    assert compare_rounds([1.0] * 5, uneven, "lower").ratio == pytest.approx(math.exp(0.2))


def test_an_engine_against_itself_is_not_separable():
    paired = compare_rounds([3.0, 1.0, 2.0, 5.0, 4.0], [3.0, 1.0, 2.0, 5.0, 4.0], "higher")
    assert (paired.ratio, paired.low, paired.high) == (1.0, 1.0, 1.0)
    assert paired.answer == "not separable"
