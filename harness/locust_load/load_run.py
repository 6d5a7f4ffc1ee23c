"""One run as the master sees it: prepared, begun on every worker, collected, ended and closed.

One thread drives it from top to bottom; messages only wake it. In a local run the only worker is
this very process. Knows no locust: who is alive and how to reach them is handed in.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Mapping
from typing import Final, Protocol
from uuid import uuid4

from engines.api import CbbenchError
from engines.clock import WallClock
from harness.locust_load import closing
from harness.locust_load.collector import Collector
from harness.locust_load.layout import Layout
from harness.locust_load.messages import (
    Ack,
    Begin,
    End,
    Ping,
    Pong,
    Prepare,
    Prepared,
    Report,
    ToMaster,
    ToWorker,
)
from harness.locust_load.plan import share
from harness.records import CellKey, CellRecorder, CellTrailer
from harness.results.file import open_run
from harness.worker.machine_watch import MachineSample, between, sample, usable_cpus

logger = logging.getLogger("cbbench")
_PREPARED_WITHIN_S: Final = 300.0
_PONG_WITHIN_S: Final = 5.0
_PINGS: Final = 8
_LEAD_S: Final = 0.25
_LOST_AFTER_S: Final = 5.0
_TOLD_WITHIN_S: Final = 8.0
_LOOK_EVERY_S: Final = 0.25


class Wires(Protocol):
    """The workers, by id. `workers` are those that have users.

    `is_local`: the only worker is this process. `are_ours`: the workers are its children.
    """

    is_local: bool
    are_ours: bool

    def send(self, worker: str, message: ToWorker) -> None: ...

    def workers(self) -> list[str]: ...

    def is_alive(self, worker: str) -> bool: ...


class LoadRun:
    """`on_complete` is called, in a thread of the run's, when every request has ended."""

    def __init__(
        self,
        layout: Layout,
        wires: Wires,
        on_complete: Callable[[], None],
        on_error: Callable[[CbbenchError], None],
        locust_version: str,
    ) -> None:
        self.name = uuid4().hex[:12]
        self.folder = layout.folder
        self._layout = layout
        self._wires = wires
        self._on_complete = on_complete
        self._on_error = on_error
        self._locust_version = locust_version
        self._changed = threading.Condition()
        self._prepared: dict[str, Prepared] = {}
        self._pongs: dict[str, tuple[Pong, float]] = {}
        self._workers: list[str] = []
        self._spawned = False
        self._stopping = False
        self._lost: set[str] = set()
        self._clock = WallClock()
        self._clock_uncertainty_s: float | None = None
        self._before: MachineSample | None = None
        self._recorder: CellRecorder | None = None
        self._collector: Collector | None = None
        self._trailer: CellTrailer | None = None

    def start(self) -> None:
        threading.Thread(target=self._drive, name="load run", daemon=True).start()

    def users_are_there(self) -> None:
        with self._changed:
            self._spawned = True
            self._changed.notify_all()

    def receive(self, worker: str, message: ToMaster) -> None:
        if message.run != self.name:
            return
        if isinstance(message, Report):
            if self._take(worker, message):
                self._wires.send(worker, Ack(self.name, message.number))
        elif isinstance(message, Prepared):
            self._prepared[worker] = message
        else:
            self._pongs[worker] = message, time.perf_counter()
        with self._changed:
            self._changed.notify_all()

    def stop(self, grace_s: float) -> None:
        """Ends the run on every worker, and returns when all has been told or is lost."""
        with self._changed:
            if self._stopping:
                return
            self._stopping = True
            self._changed.notify_all()
        for worker in self._workers:
            if self._collector is None or self._collector.owes(worker):
                self._wires.send(worker, End(self.name, grace_s))
        if self._collector is not None:
            was_complete = self._collector.is_complete
            self._await_last_words(grace_s + _TOLD_WITHIN_S)
            self._trailer = self._write_trailer(interrupted=not was_complete)

    def close(self, encoding: str) -> closing.Outcome | None:
        """After `stop`. `None`, and no folder is left, when nothing was measured."""
        if self._recorder is None or self._collector is None:
            self.folder.discard()
            return None
        self._recorder.close(self._trailer)
        layout = self._layout
        settings = closing.describe(self._setting()) | closing.describe_tally(
            self._collector.tally,
            layout.options.users,
            self._clock_uncertainty_s,
            len(self._lost),
        )
        return closing.close(
            self.folder.path, layout.options, settings, layout.environment, encoding
        )

    def _drive(self) -> None:
        try:
            if self._await(lambda: self._spawned):
                offsets_s = self._prepare()
                if not self._stopping:
                    self._begin(offsets_s)
                    self._watch()
        except CbbenchError as error:
            self._on_error(error)

    def _prepare(self) -> Mapping[str, float]:
        """Every worker gets its share and stands ready; returns how far its clock is ahead."""
        self._workers = self._wires.workers()
        if not self._workers:
            raise CbbenchError("no load worker has a user; give at least as many --users")
        limits, form = self._layout.limits, self._layout.prompt_form
        for place, worker in enumerate(self._workers):
            order = Prepare(
                self.name,
                place,
                len(self._workers),
                limits.vocab_size,
                limits.max_model_len,
                limits.special_token_ids,
                form,
            )
            self._wires.send(worker, order)
        self._await(self._are_prepared, _PREPARED_WITHIN_S)
        if not self._stopping:
            self._check_prepared()
        return {worker: self._clock_offset_s(worker) for worker in self._workers}

    def _are_prepared(self) -> bool:
        waited_for = set(self._workers) - set(self._prepared)
        return not waited_for or not all(map(self._wires.is_alive, waited_for))

    def _check_prepared(self) -> None:
        """Raises `CbbenchError` unless every worker drew the same requests."""
        for worker in self._workers:
            found = self._prepared.get(worker)
            if found is None:
                raise CbbenchError(f"load worker {worker} was lost before the run began")
            if found.error:
                raise CbbenchError(f"load worker {worker}: {found.error}")
            if found.workload_hash != self._layout.plan.workload.hash:
                raise CbbenchError(
                    f"load worker {worker} drew another workload ({found.workload_hash[:12]}, "
                    f"expected {self._layout.plan.workload.hash[:12]}); "
                    "give it the same cbbench and the same files"
                )

    def _clock_offset_s(self, worker: str) -> float:
        """By the quickest of several pings."""
        if self._wires.is_local:
            return 0.0
        best: tuple[float, float] | None = None
        for _ in range(_PINGS):
            self._pongs.pop(worker, None)
            self._wires.send(worker, Ping(self.name, time.perf_counter()))
            if not self._await(lambda: worker in self._pongs, _PONG_WITHIN_S):
                continue
            pong, came_s = self._pongs[worker]
            trip_s = came_s - pong.sent_s
            offset_s = pong.answered_s - (pong.sent_s + came_s) / 2
            best = (trip_s, offset_s) if best is None else min(best, (trip_s, offset_s))
        if best is None:
            raise CbbenchError(f"load worker {worker} was lost before the run began")
        self._clock_uncertainty_s = max(self._clock_uncertainty_s or 0.0, best[0] / 2)
        return best[1]

    def _begin(self, offsets_s: Mapping[str, float]) -> None:
        plan, options = self._layout.plan, self._layout.options
        setting = self._setting()
        open_run(self.folder.path, closing.describe(setting), self._layout.environment)
        self._recorder = CellRecorder(
            self.folder.path,
            CellKey(options.label, plan.load.name, 1),
            plan.requests,
            spec=closing.spec_of(options),
            info=closing.engine_info(setting),
            clock=self._clock,
            closed_loop=plan.closed_loop,
        )
        count = len(self._workers)
        shares = {
            worker: share(plan.requests, place, count) for place, worker in enumerate(self._workers)
        }
        self._collector = Collector(
            self._recorder, plan.requests, shares, closed_loop=plan.closed_loop
        )
        self._before = sample(os.getpid())
        t0_s = time.perf_counter() + _LEAD_S
        self._clock.restart(t0_s)
        for worker, offset_s in offsets_s.items():
            self._wires.send(worker, Begin(self.name, t0_s + offset_s))

    def _watch(self) -> None:
        """Until every request has ended or the run is stopped; gives up who stays away."""
        assert self._collector is not None
        collector, away_since_s = self._collector, dict[str, float]()
        while not self._stopping:
            if self._await(lambda: collector.is_complete, _LOOK_EVERY_S):
                self._on_complete()
                return
            for worker in self._workers:
                if not collector.owes(worker) or self._wires.is_alive(worker):
                    away_since_s.pop(worker, None)
                elif (
                    time.perf_counter() - away_since_s.setdefault(worker, time.perf_counter())
                    > _LOST_AFTER_S
                ):
                    self._lose(worker)

    def _lose(self, worker: str) -> None:
        assert self._collector is not None
        self._lost.add(worker)
        left = self._collector.lose(worker, self._clock.now())
        logger.error("load worker %s was lost with %d requests, which have failed", worker, left)

    def _await_last_words(self, patience_s: float) -> None:
        assert self._collector is not None
        collector = self._collector

        def waits_for() -> list[str]:
            return [w for w in self._workers if collector.owes(w) and self._wires.is_alive(w)]

        until_s = time.perf_counter() + patience_s
        with self._changed:
            while waits_for() and time.perf_counter() < until_s:
                self._changed.wait(_LOOK_EVERY_S)
        for worker in self._workers:
            if collector.owes(worker):
                self._lose(worker)

    def _await(self, is_so: Callable[[], bool], patience_s: float | None = None) -> bool:
        """Whether it became so in time and before the run was stopped."""
        until_s = None if patience_s is None else time.perf_counter() + patience_s
        with self._changed:
            while not self._stopping and not is_so():
                if until_s is not None and time.perf_counter() >= until_s:
                    return False
                self._changed.wait(_LOOK_EVERY_S)
        return not self._stopping

    def _write_trailer(self, *, interrupted: bool) -> CellTrailer:
        assert self._before is not None
        assert self._collector is not None
        disturbance = between(self._before, sample(os.getpid()), len(usable_cpus(os.getpid())))
        alone = self._wires.are_ours and not closing.is_loopback(self._layout.options.host)
        return CellTrailer(
            end_s=self._clock.now(),
            interrupted=interrupted,
            warmup_requests=sum(found.warmups for found in self._prepared.values()),
            others_cpu_share=disturbance.others_cpu if alone else None,
            clock_drift_s=disturbance.clock_drift_s,
            gc_pauses=self._collector.tally.gc_pauses,
            gc_pause_s=self._collector.tally.gc_pause_s,
        )

    def _setting(self) -> closing.Setting:
        layout = self._layout
        return closing.Setting(
            layout.options,
            layout.plan,
            layout.prompt_form,
            layout.limits.max_model_len,
            len(self._workers),
            self._locust_version,
        )

    def _take(self, worker: str, report: Report) -> bool:
        """Whether to acknowledge it. What comes before the run has begun has nothing to tell."""
        if self._collector is None:
            return report.last
        try:
            return self._collector.take(worker, report)
        except CbbenchError as error:  # the disk takes no more
            self._on_error(error)
            return True
