"""What disturbs a measurement from outside: other programs, the collector, a stepping clock.

Takes samples before and after a cell and in no hot path. Judges nothing: the verdict does.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import psutil

_IDLE: Final = ("idle", "iowait")
_COUNTED_TWICE: Final = ("guest", "guest_nice")


@dataclass(frozen=True, slots=True)
class MachineSample:
    """Seconds since some unknown start: two clocks, and CPU time of the machine and of us."""

    wall_s: float
    monotonic_s: float
    busy_cpu_s: float
    own_cpu_s: float


@dataclass(frozen=True, slots=True)
class Disturbance:
    """What happened between two samples.

    `others_cpu` is the share of all cores that others used or the hypervisor took, 0 to 1;
    `clock_drift_s` is how far the wall clock ran ahead of the monotonic one.
    """

    others_cpu: float
    clock_drift_s: float


def sample(parent_pid: int) -> MachineSample:
    """Takes a sample; `parent_pid` and all its descendants are ours."""
    return MachineSample(
        wall_s=time.time(),
        monotonic_s=time.perf_counter(),
        busy_cpu_s=_busy_cpu_s(psutil.cpu_times()._asdict()),
        own_cpu_s=_own_cpu_s(parent_pid),
    )


def between(before: MachineSample, after: MachineSample, num_cpus: int) -> Disturbance:
    """Compares two samples of one run."""
    elapsed_s = after.monotonic_s - before.monotonic_s
    others_s = (after.busy_cpu_s - before.busy_cpu_s) - (after.own_cpu_s - before.own_cpu_s)
    share = others_s / (elapsed_s * num_cpus) if elapsed_s > 0 else 0.0
    return Disturbance(
        others_cpu=min(max(share, 0.0), 1.0),
        clock_drift_s=(after.wall_s - before.wall_s) - elapsed_s,
    )


@dataclass(slots=True)
class CollectorWatch:
    """Lengths of the pauses that the garbage collector made while this was entered."""

    pauses_s: list[float] = field(default_factory=list)
    _started_s: float | None = None

    def __enter__(self) -> CollectorWatch:
        gc.callbacks.append(self._note)
        return self

    def __exit__(self, *_: object) -> None:
        gc.callbacks.remove(self._note)

    def _note(self, phase: str, info: dict[str, Any]) -> None:
        if phase == "start":
            self._started_s = time.perf_counter()
        elif self._started_s is not None:
            self.pauses_s.append(time.perf_counter() - self._started_s)
            self._started_s = None


def _busy_cpu_s(times: Mapping[str, float]) -> float:
    return sum(v for name, v in times.items() if name not in _IDLE + _COUNTED_TWICE)


def _own_cpu_s(parent_pid: int) -> float:
    total_s = 0.0
    try:
        parent = psutil.Process(parent_pid)
        processes = [parent, *parent.children(recursive=True)]
    except psutil.NoSuchProcess:
        return total_s
    for process in processes:
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        total_s += times.user + times.system
    return total_s
