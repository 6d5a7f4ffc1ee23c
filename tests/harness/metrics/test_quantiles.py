"""Where a quantile is marked as having too few values."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.metrics.quantiles import quantile, summarise


@pytest.mark.parametrize(
    ("n", "thin"), [(58, ("p95", "p99")), (59, ("p99",)), (298, ("p99",)), (299, ())]
)
def test_p95_takes_59_values_and_p99_299(n, thin):
    assert summarise([float(i) for i in range(n)]).thin == thin


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=40), st.floats(0, 1))
def test_quantiles_are_numpys_linear_ones(values, q):
    assert quantile(sorted(values), q) == pytest.approx(np.quantile(values, q), abs=1e-6)
