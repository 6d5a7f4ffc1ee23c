from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engines.api import CbbenchError
from workloads.arrivals import unit_arrivals


def test_infinite_burstiness_gives_constant_gaps() -> None:
    assert unit_arrivals(5, math.inf, seed=0) == [0.0, 1.0, 2.0, 3.0, 4.0]


@pytest.mark.parametrize("burstiness", [0.0, -1.0, math.nan, -math.inf])
def test_burstiness_without_meaning_is_refused(burstiness: float) -> None:
    with pytest.raises(CbbenchError, match="give a number > 0"):
        unit_arrivals(5, burstiness, seed=0)


@pytest.mark.parametrize(("burstiness", "variation"), [(0.25, 2.0), (1.0, 1.0), (4.0, 0.5)])
def test_gaps_have_mean_1_and_variation_of_one_over_the_root(
    burstiness: float, variation: float
) -> None:
    gaps = np.diff(unit_arrivals(20_001, burstiness, seed=0))
    assert gaps.mean() == pytest.approx(1.0, abs=0.05)
    assert gaps.std() / gaps.mean() == pytest.approx(variation, rel=0.05)


@given(st.integers(1, 40), st.integers(0, 40), st.sampled_from([0.3, 1.0, 7.0, math.inf]))
def test_fewer_arrivals_are_the_beginning_of_more(few: int, extra: int, burstiness: float) -> None:
    more = unit_arrivals(few + extra, burstiness, seed=5)
    assert unit_arrivals(few, burstiness, seed=5) == more[:few]
    assert more[0] == 0.0
    assert more == sorted(more)
    assert all(map(math.isfinite, more))


def test_no_request_has_no_arrival() -> None:
    assert unit_arrivals(0, 1.0, seed=0) == []


def test_another_seed_gives_other_gaps() -> None:
    assert unit_arrivals(3, 1.0, seed=0) != unit_arrivals(3, 1.0, seed=1)
