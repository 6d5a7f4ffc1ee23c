"""Disturbances from outside, from two samples; and the collector's pauses."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import time

import pytest

from harness.worker.machine_watch import (
    CollectorWatch,
    MachineSample,
    between,
    busy_cpu_s,
    sample,
    usable_cpus,
)

START = MachineSample(wall_s=1000.0, monotonic_s=10.0, busy_cpu_s=500.0, own_cpu_s=50.0)


def after(wall_s: float = 10.0, busy_s: float = 0.0, own_s: float = 0.0) -> MachineSample:
    return MachineSample(1000.0 + wall_s, 20.0, 500.0 + busy_s, 50.0 + own_s)


def test_cpu_of_others_is_a_share_of_all_cores() -> None:
    assert between(START, after(busy_s=12.0, own_s=8.0), num_cpus=2).others_cpu == 0.2


def test_only_the_cpus_that_this_process_may_use_count() -> None:
    times = [{"user": 1.0, "idle": 9.0}, {"user": 5.0, "system": 1.0, "idle": 4.0}, {"user": 8.0}]
    assert busy_cpu_s(times, {1}) == 6.0
    assert busy_cpu_s(times, {0, 1}) == 7.0
    assert busy_cpu_s(times, {1, 7}) == 15.0


def test_usable_cpus_are_those_of_the_affinity(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {3, 5}, raising=False)
    assert usable_cpus(os.getpid()) == {3, 5}


def test_own_cpu_is_not_others() -> None:
    assert between(START, after(busy_s=8.0, own_s=8.5), num_cpus=2).others_cpu == 0.0


def test_wall_clock_that_jumps_is_seen_and_changes_no_duration() -> None:
    disturbance = between(START, after(wall_s=0.0, busy_s=4.0), num_cpus=2)
    assert disturbance.clock_drift_s == -10.0
    assert disturbance.others_cpu == 0.2


def test_sample_counts_this_process_among_our_own() -> None:
    before = sample(os.getpid())
    until_s = time.process_time() + 0.05
    while time.process_time() < until_s:
        pass
    assert sample(os.getpid()).own_cpu_s >= before.own_cpu_s + 0.03


def test_jumping_wall_clock_leaves_monotonic_samples_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    before = sample(os.getpid())
    wall = time.time
    monkeypatch.setattr(time, "time", lambda: wall() - 10.0)
    later = sample(os.getpid())
    assert later.monotonic_s >= before.monotonic_s
    assert between(before, later, 2).clock_drift_s == pytest.approx(-10.0, abs=0.5)


def test_collector_pauses_are_counted_while_entered() -> None:
    with CollectorWatch() as watch:
        gc.collect()
    inside = len(watch.pauses_s)
    gc.collect()
    assert inside >= 1
    assert len(watch.pauses_s) == inside
    assert all(pause >= 0 for pause in watch.pauses_s)


def test_a_server_that_somebody_else_started_can_be_counted_as_ours() -> None:
    code = "x = 0\nfor i in range(10**7): x += i\nprint('done', flush=True)\ninput()"
    busy = [sys.executable, "-c", code]
    with subprocess.Popen(busy, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout.read(4) == b"done"
        child_of_nobody_here = 2**22 + 1  # above what a system gives out
        without = sample(child_of_nobody_here).own_cpu_s
        with_it = sample(child_of_nobody_here, [other.pid, other.pid]).own_cpu_s
        other.communicate(b"\n")
    assert without == 0
    assert 0 < with_it < 60
