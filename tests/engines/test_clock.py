"""The two clocks: one is not moved by the day's time, the other by nothing but its owner."""

from __future__ import annotations

import threading
import time

import pytest

from engines.api import Request, StepEvents
from engines.clock import VirtualClock, WallClock
from engines.generate_batching import BatchRule, Bounds
from engines.generate_serving import Serving, Setup
from workloads.sources import ScheduledSource

TODAY = time.time


class Jumping:
    """A batch of one that sets the day's time back by ten seconds after its second token."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch = monkeypatch

    def pack(self, requests):
        return self

    def run(self, max_new_tokens, on_tokens):
        for n in range(max_new_tokens):
            if n == 2:
                self._monkeypatch.setattr(time, "time", lambda: TODAY() - 10.0)
            on_tokens([n])


def test_a_day_set_back_in_the_middle_of_a_run_changes_no_duration(monkeypatch):  # J5
    clock, events = WallClock(), []

    class Sink:
        def emit(self, e: StepEvents) -> None:
            events.append(e)

    bounds = Bounds(64, None)
    setup = Setup(
        BatchRule(1, None), bounds, Jumping(monkeypatch), (), True, False, threading.Event()
    )
    began_s = time.time()
    Serving(setup, ScheduledSource([Request("a", (1, 2), 6)], clock), Sink(), clock).serve()
    assert time.time() < began_s, "the day was meant to be set back"
    times_s = [e.time_s for e in events if e.request_ids]
    assert len(times_s) == 6
    assert times_s == sorted(times_s)
    assert times_s[0] >= 0
    assert times_s[-1] < 9.0
    rows = [e.step for e in events if e.step is not None]
    assert all(0 <= row.start_s <= row.end_s < 9.0 for row in rows)
    stats = events[-1].finished[0].stats
    parts = (stats.queue_s, stats.prefill_s, stats.decode_s)
    assert all(0 <= part < 9.0 for part in parts)
    assert sum(parts) == pytest.approx(times_s[-1], abs=1e-6)


def test_a_restarted_wall_clock_counts_from_now(monkeypatch):
    ticks = iter([100.0, 103.0, 110.0, 110.5])
    monkeypatch.setattr(time, "perf_counter", lambda: next(ticks))
    clock = WallClock()
    assert clock.now() == 3.0
    clock.restart()
    assert clock.now() == 0.5


def test_the_wall_clock_sleeps_until_a_time_and_not_at_all_for_a_past_one():
    clock = WallClock()
    clock.sleep_until(0.005)
    assert clock.now() >= 0.005
    clock.sleep_until(-1e9)


def test_a_virtual_clock_moves_only_when_it_is_moved_and_never_back():
    clock = VirtualClock(2.0)
    assert (clock.now(), clock.now()) == (2.0, 2.0)
    clock.advance(0.5)
    clock.sleep_until(1.0)
    assert clock.now() == 2.5
    clock.sleep_until(4.0)
    assert clock.now() == 4.0
    for duration_s in (-0.1, float("nan")):
        with pytest.raises(ValueError, match="cannot go back"):
            clock.advance(duration_s)
    assert clock.now() == 4.0
