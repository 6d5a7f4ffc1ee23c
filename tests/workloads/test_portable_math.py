from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workloads.portable_math import exp, log


@given(st.floats(min_value=0, exclude_min=True, allow_infinity=False))
def test_log_agrees_with_the_librarys_to_the_last_bits(x: float) -> None:
    assert log(x) == pytest.approx(math.log(x), rel=1e-14, abs=1e-15)


@given(st.floats(min_value=-700, max_value=700))
def test_exp_agrees_with_the_librarys_to_the_last_bits(x: float) -> None:
    assert exp(x) == pytest.approx(math.exp(x), rel=1e-14)


def test_values_at_the_ends() -> None:
    assert log(1.0) == 0.0
    assert exp(0.0) == 1.0
    assert exp(-1e9) == 0.0
    assert exp(-math.inf) == 0.0
