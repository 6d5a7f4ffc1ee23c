"""False alarms of the interval on seeded log-normal rounds: once, and over all looks together."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest

from harness.looks import LOOK_CONFIDENCE, LOOKS
from harness.statistics import compare_rounds

RUNS = 2000


def most(share: float) -> float:
    """What a share may come out as, 1 time in 1000."""
    return share + 3.09 * math.sqrt(share * (1 - share) / RUNS)


def paths() -> list[list[float]]:
    """The engine's values of equal engines, over a baseline of ones."""
    rng = np.random.default_rng(11)
    return np.exp(rng.normal(0.0, 0.05, (RUNS, LOOKS[-1]))).tolist()


def is_separable(values: Sequence[float], rounds: int, confidence: float) -> bool:
    found = compare_rounds([1.0] * rounds, values[:rounds], "higher", confidence)
    return found.answer != "not separable"


@pytest.mark.parametrize("rounds", LOOKS)
def test_who_looks_once_is_wrong_in_five_of_a_hundred(rounds):
    share = sum(is_separable(path, rounds, 0.95) for path in paths()) / RUNS
    assert 2 * 0.05 - most(0.05) <= share <= most(0.05)


def test_who_looks_four_times_at_a_plain_interval_is_wrong_more_often():
    share = sum(any(is_separable(p, n, 0.95) for n in LOOKS) for p in paths()) / RUNS
    assert share > 0.10


def test_all_looks_together_are_wrong_in_five_of_a_hundred():
    missed = [[is_separable(path, n, LOOK_CONFIDENCE) for n in LOOKS] for path in paths()]
    share = sum(map(any, missed)) / RUNS
    assert 2 * 0.05 - most(0.05) <= share <= most(0.05)
    spent = [sum(any(of_path[: n + 1]) for of_path in missed) / RUNS for n in range(len(LOOKS))]
    assert spent == pytest.approx([0.0164, 0.0287, 0.0392, 0.0498], abs=0.012)


@pytest.mark.parametrize("last", [6, 7, 9, 11, 13, 17, 19])
def test_an_end_between_looks_is_wrong_no_more_often(last):
    ends = [*(n for n in LOOKS if n < last), last]
    share = sum(any(is_separable(p, n, LOOK_CONFIDENCE) for n in ends) for p in paths()) / RUNS
    assert share <= most(0.05)
