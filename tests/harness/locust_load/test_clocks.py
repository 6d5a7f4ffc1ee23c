"""How far apart two clocks are, and how sure that is."""

from __future__ import annotations

import pytest

from harness.locust_load.clocks import RoundTrip, measure


def test_the_quickest_trip_tells_the_offset_and_its_own_half_the_doubt():
    trips = [RoundTrip(10.0, 510.9, 11.0), RoundTrip(20.0, 520.101, 20.2), RoundTrip(30, 530, 33)]
    offset = measure(trips)
    assert offset.ahead_s == pytest.approx(500.001)
    assert offset.uncertainty_s == pytest.approx(0.1)


def test_a_clock_behind_is_ahead_by_less_than_nothing():
    assert measure([RoundTrip(10.0, 3.0, 10.0)]).ahead_s == -7.0


def test_without_a_trip_nothing_is_known():
    assert measure([]) is None
