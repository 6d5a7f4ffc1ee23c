"""When a window ends: with time, or with the request that fills the batch."""

from __future__ import annotations

import pytest

from engines.loop.policies.window import WindowPolicy


def test_a_full_batch_goes_before_its_window_ends(lab, request_of):
    requests = [request_of(f"r{i}", 4, 1, scheduled_s=float(i)) for i in range(4)]
    rows = lab(WindowPolicy(4, max_delay_s=100.0)).play(requests).rows
    assert [(row.start_s, row.useful_rows) for row in rows] == [(3.0, 4)]


def test_one_less_than_full_waits_for_the_window(lab, request_of):
    requests = [request_of(f"r{i}", 4, 1, scheduled_s=float(i)) for i in range(3)]
    rows = lab(WindowPolicy(4, max_delay_s=100.0)).play(requests).rows
    assert [(row.start_s, row.useful_rows) for row in rows] == [(100.0, 3)]


@pytest.mark.parametrize("waiting", [5, 9])
def test_no_batch_is_larger_than_its_bound(lab, request_of, waiting):
    requests = [request_of(f"r{i}", 4, 1) for i in range(waiting)]
    rows = lab(WindowPolicy(4, max_delay_s=0.0)).play(requests).rows
    assert [row.useful_rows for row in rows] == [4] * (waiting // 4) + [1]
