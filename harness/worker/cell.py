"""Runs one cell in a worker: reset, warm-up, a quiet moment, then the measured run.

Writes records through the recorder and reports snapshots; computes no metric and knows no pipe.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from engines.api import (
    Clock,
    Engine,
    EngineInfo,
    Outbound,
    Request,
    RequestSource,
    Sink,
    StepEvents,
)
from engines.clock import WallClock
from harness.plans import PlanLog, PlanTap
from harness.records import CellRecorder, CellSnapshot, CellTrailer, RecordedSource
from harness.worker.errors import error_text
from harness.worker.machine_watch import CollectorWatch, MachineSample, between, sample, usable_cpus
from harness.worker.protocol import CellDone, Progress, RunCell
from workloads.sources import ClosedLoopSource, make_source, sets_arrivals
from workloads.workload import Load

REPORT_EVERY_S: Final = 0.25
_ALL_AT_ONCE: Final = Load(name="warm-up", request_rate=float("inf"), max_concurrency=None)


class NullSink:
    """Takes what a warm-up gives and forgets it."""

    def emit(self, events: StepEvents) -> None:
        pass


class Tee:
    """One emission, many listeners, in order."""

    def __init__(self, *sinks: Sink) -> None:
        self._sinks = sinks

    def emit(self, events: StepEvents) -> None:
        for sink in self._sinks:
            sink.emit(events)


class CellRun:
    """One cell on a built engine. `stopped` says whether its end was asked for."""

    def __init__(
        self,
        engine: Engine,
        command: RunCell,
        *,
        spec: str,
        info: EngineInfo,
        tap: PlanTap,
        parent_pid: int,
        stopped: Callable[[], bool],
        report: Callable[[Progress], None],
    ) -> None:
        self._engine = engine
        self._command = command
        self._spec, self._info, self._tap = spec, info, tap
        self._parent_pid = parent_pid
        self._stopped = stopped
        self._report = report
        self._clock = WallClock()
        self._recorder = CellRecorder(
            command.folder,
            command.key,
            command.requests,
            spec=spec,
            info=info,
            clock=self._clock,
            save_outputs=command.save_outputs,
            closed_loop=sets_arrivals(command.requests, command.load),
        )
        self._measuring = threading.Event()
        self._served_by: Sequence[int] = ()

    def run(self) -> CellDone:
        """Raises whatever the engine raises, after the record says so."""
        with self._reporting():
            try:
                self._warm_up()
                trailer, snapshot = self._measure()
            except Exception as error:
                self._recorder.close(self._broken(error))
                raise
        self._recorder.close(trailer)
        return CellDone(self._command.key, trailer.interrupted, snapshot)

    def _warm_up(self) -> None:
        if isinstance(self._engine, Outbound):
            self._engine.prepare(self._command.requests, self._command.load.max_concurrency)
            self._served_by = self._engine.server_pids()
        self._engine.reset()
        if self._command.warmup and not self._stopped():
            source, sink = _wire(self._command.warmup, _ALL_AT_ONCE, self._clock, NullSink())
            self._engine.run(source, sink, self._clock)
            self._engine.reset()

    def _measure(self) -> tuple[CellTrailer, CellSnapshot]:
        """The run itself; nothing else happens between `restart` and the engine's return."""
        inner, sink = _wire(self._command.requests, self._command.load, self._clock, self._recorder)
        source = RecordedSource(inner, self._recorder)
        with self._saved_plans(), _quiet_collector() as collector:
            before = sample(self._parent_pid, self._served_by)
            self._clock.restart()
            self._measuring.set()
            if not self._stopped():
                self._engine.run(source, sink, self._clock)
            end_s = self._clock.now()
            snapshot = self._recorder.snapshot()
            after = sample(self._parent_pid, self._served_by)
        return self._trailer(end_s, collector.pauses_s, before, after), snapshot

    def _trailer(
        self,
        end_s: float,
        pauses_s: Sequence[float],
        before: MachineSample,
        after: MachineSample,
    ) -> CellTrailer:
        disturbance = between(before, after, len(usable_cpus(self._parent_pid)))
        return CellTrailer(
            end_s=end_s,
            interrupted=self._stopped(),
            warmup_requests=len(self._command.warmup),
            others_cpu_share=disturbance.others_cpu,
            clock_drift_s=disturbance.clock_drift_s,
            gc_pauses=len(pauses_s),
            gc_pause_s=sum(pauses_s),
            remote=self._engine.observations() if isinstance(self._engine, Outbound) else None,
        )

    def _broken(self, error: Exception) -> CellTrailer:
        return CellTrailer(
            end_s=self._clock.now(),
            warmup_requests=len(self._command.warmup),
            error=error_text(error),
        )

    @contextmanager
    def _saved_plans(self) -> Iterator[None]:
        """The turns of the measured run, if they are wanted; never those of a warm-up."""
        command = self._command
        if not command.save_plans:
            yield
            return
        log = PlanLog(command.folder, command.key, self._spec, self._info)
        self._tap.log = log
        try:
            yield
        finally:
            self._tap.log = None
            log.close()

    @contextmanager
    def _reporting(self) -> Iterator[None]:
        """Snapshots from a thread of their own, which also repeats a stop that came too early."""
        ended = threading.Event()

        def report() -> None:
            while not ended.wait(REPORT_EVERY_S):
                if self._stopped():
                    self._engine.stop()
                warm = self._measuring.is_set()
                snapshot = self._recorder.snapshot() if warm else None
                self._report(Progress(self._command.key, snapshot))

        reporter = threading.Thread(target=report, name="reporter", daemon=True)
        reporter.start()
        try:
            yield
        finally:
            ended.set()
            reporter.join()


def _wire(
    requests: tuple[Request, ...], load: Load, clock: Clock, sink: Sink
) -> tuple[RequestSource, Sink]:
    """A source for the load; a closed loop also listens, so that completions free its slots."""
    source = make_source(requests, clock, load)
    return source, (Tee(sink, source) if isinstance(source, ClosedLoopSource) else sink)


@contextmanager
def _quiet_collector() -> Iterator[CollectorWatch]:
    """What exists is collected and then frozen, so that pauses in the run are its own."""
    gc.collect()
    gc.freeze()
    try:
        with CollectorWatch() as watch:
            yield watch
    finally:
        gc.unfreeze()
