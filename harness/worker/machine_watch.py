"""What disturbs a measurement from outside: other programs, the collector, a stepping clock.

Takes samples before and after a cell and in no hot path. Judges nothing: the verdict does.
"""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any, Final

import psutil

_IDLE: Final = ("idle", "iowait")
_COUNTED_TWICE: Final = ("guest", "guest_nice")


@dataclass(frozen=True, slots=True)
class MachineSample:
    """Seconds since some unknown start: two clocks, CPU time of the CPUs that we may use, ours."""

    wall_s: float
    monotonic_s: float
    busy_cpu_s: float
    own_cpu_s: float


@dataclass(frozen=True, slots=True)
class Disturbance:
    """What happened between two samples.

    `others_cpu` is the share of the CPUs that we may use which others used or the hypervisor took,
    0 to 1;
    `clock_drift_s` is how far the wall clock ran ahead of the monotonic one.
    """

    others_cpu: float
    clock_drift_s: float


def sample(parent_pid: int, others: Sequence[int] = ()) -> MachineSample:
    """Takes a sample; `parent_pid`, `others` and all their descendants are ours."""
    return MachineSample(
        wall_s=time.time(),
        monotonic_s=time.perf_counter(),
        busy_cpu_s=busy_cpu_s(
            [times._asdict() for times in psutil.cpu_times(percpu=True)], usable_cpus(parent_pid)
        ),
        own_cpu_s=_own_cpu_s((parent_pid, *others)),
    )


def usable_cpus(pid: int) -> Set[int]:
    """The CPUs that a process may use; a library may pin threads of this one to fewer."""
    if hasattr(os, "sched_getaffinity"):
        try:
            return os.sched_getaffinity(pid)
        except ProcessLookupError:
            return os.sched_getaffinity(0)
    return frozenset(range(os.cpu_count() or 1))


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


def busy_cpu_s(times_of: Sequence[Mapping[str, float]], usable: Set[int]) -> float:
    """Busy seconds of the usable CPUs; of all, where some of these are not listed."""
    listed = usable if all(cpu < len(times_of) for cpu in usable) else range(len(times_of))
    return sum(
        value
        for cpu in listed
        for name, value in times_of[cpu].items()
        if name not in _IDLE + _COUNTED_TWICE
    )


def _own_cpu_s(roots: Sequence[int]) -> float:
    """Of these processes and their descendants, each once."""
    families = {process.pid: process for pid in roots for process in _family(pid)}
    total_s = 0.0
    for process in families.values():
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        total_s += times.user + times.system
    return total_s


def _family(pid: int) -> list[psutil.Process]:
    try:
        parent = psutil.Process(pid)
        return [parent, *parent.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []
