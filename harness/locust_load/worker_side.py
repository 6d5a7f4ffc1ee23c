"""A worker's part of a run: prepares, lets users play, and reports until it is believed.

Hears the master's messages and answers through `send`, which never raises. In a local run it
shares the process with the master's part. Uses threads; under gevent they are greenlets.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Final

from engines.api import CbbenchError, Request
from harness.locust_load.messages import (
    Ack,
    Begin,
    Begun,
    End,
    Ping,
    Pong,
    Prepare,
    Prepared,
    Report,
    ToMaster,
    ToWorker,
)
from harness.locust_load.options import LoadOptions
from harness.locust_load.player import News, Player, Row, Seat
from harness.locust_load.stage import Stage, set_stage
from harness.worker.machine_watch import CollectorWatch

logger = logging.getLogger("cbbench")
REPORT_EVERY_S: Final = 0.4
_AGAIN_AFTER_S: Final = 3.0
Tell = Callable[[LoadOptions, Request, Row], None]


class WorkerRun:
    """One run that has begun at this worker."""

    def __init__(
        self,
        name: str,
        stage: Stage,
        send: Callable[[ToMaster], None],
        tell: Callable[[Request, Row], None],
    ) -> None:
        self.clock = stage.clock
        self._name = name
        self._send = send
        self._connections = stage.caller.connections
        self.player = Player(
            stage.plan.requests,
            stage.chains,
            closed_loop=stage.plan.closed_loop,
            clock=stage.clock.now,
            prepare=stage.caller.prepare,
            tell=tell,
        )
        self._pauses = ExitStack()
        self._collector = self._pauses.enter_context(CollectorWatch())
        self._reports: dict[int, tuple[Report, float]] = {}
        self._number = 0
        self._told_last = threading.Event()
        self._reporting = threading.Lock()
        threading.Thread(target=self._report_often, name="reports", daemon=True).start()

    def end(self, grace_s: float) -> None:
        """Returns when everything is told; whether it was heard the master knows."""
        self.player.end(grace_s)
        self.report()

    def acknowledge(self, number: int) -> None:
        self._reports.pop(number, None)

    def report(self) -> None:
        """Tells what is new; the last time when all of this worker's requests have ended."""
        with self._reporting:
            if self._told_last.is_set():
                return
            last = self.player.has_ended
            news = self.player.news()
            if last or news != News():
                self._post(news, last=last)

    def _post(self, news: News, *, last: bool) -> None:
        self._number += 1
        pauses_s = self._collector.pauses_s if last else []
        report = Report(self._name, self._number, news, len(pauses_s), sum(pauses_s), last)
        self._reports[report.number] = report, time.perf_counter()
        if last:
            self._pauses.close()
            self._connections.close()
            self._told_last.set()
        self._send(report)

    def _report_often(self) -> None:
        while not (self._told_last.is_set() and not self._reports):
            self._told_last.wait(REPORT_EVERY_S)
            self.report()
            self._send_again()
            if self._told_last.is_set():
                time.sleep(REPORT_EVERY_S)

    def _send_again(self) -> None:
        """What has not been acknowledged for long may have been lost on a broken connection."""
        now_s = time.perf_counter()
        for number, (report, sent_s) in sorted(self._reports.items()):
            if now_s - sent_s > _AGAIN_AFTER_S:
                self._reports[number] = report, now_s
                self._send(report)


class WorkerSide:
    """What one locust process that has users does, for any number of runs, one at a time."""

    def __init__(
        self,
        send: Callable[[ToMaster], None],
        read_options: Callable[[], LoadOptions],
        num_users: Callable[[], int],
        tell: Tell,
    ) -> None:
        self._send = send
        self._read_options = read_options
        self._num_users = num_users
        self._tell = tell
        self._name = ""
        self._stage: tuple[Stage, LoadOptions] | None = None
        self._run: WorkerRun | None = None
        self._has_ended = False
        self._begun = threading.Event()
        self._over = threading.Event()

    def reset(self) -> None:
        """Before users of a new run are there."""
        self._begun.clear()
        self._over.clear()
        self._stage = self._run = None
        self._has_ended = False
        self._name = ""

    def receive(self, message: ToWorker) -> None:
        """Never blocks for long; what would is done in a thread."""
        if isinstance(message, Prepare):
            self._name = message.run
            threading.Thread(target=self._prepare, args=(message,), daemon=True).start()
        elif message.run != self._name:
            return  # of a run that is over
        elif isinstance(message, Ping):
            self._send(Pong(message.run, message.sent_s, time.perf_counter()))
        elif isinstance(message, Begin):
            self._begin(message)
        elif isinstance(message, Ack) and self._run is not None:
            self._run.acknowledge(message.number)
        elif isinstance(message, End):
            threading.Thread(target=self.end, args=(message.grace_s,), daemon=True).start()

    def play(self, seat: Seat | None) -> Seat | None:
        """A user's turn: one request, or the wait for the end when there is none for it.

        Given and returned is what the user holds on to: `None` before its first turn, and when
        there will be no other.
        """
        self._begun.wait()
        run = self._run
        if run is not None:
            seat = seat or run.player.seat()
            if run.player.play_next(seat):
                return seat
        self._over.wait()
        return None

    def let_users_go(self) -> None:
        """No user waits any more for a run to begin or to end."""
        self._begun.set()
        self._over.set()

    def end(self, grace_s: float) -> None:
        """Ends the run, if there is one, and tells the rest."""
        run, self._has_ended = self._run, True
        if run is not None:
            run.end(grace_s)
        else:
            self._end_early()
        self.let_users_go()

    def _end_early(self) -> None:
        """Of a run that never began here."""
        stage, self._stage = self._stage, None
        if stage is not None:
            stage[0].caller.connections.close()
        if self._name:
            self._send(Report(self._name, 1, News(), last=True))

    def _prepare(self, order: Prepare) -> None:
        try:
            options = self._read_options()
            stage = set_stage(options, order, self._num_users())
        except CbbenchError as error:
            self._send(Prepared(order.run, error=str(error)))
            return
        if order.run != self._name or self._has_ended:
            stage.caller.connections.close()
        else:
            self._stage = stage, options
            self._send(Prepared(order.run, stage.plan.workload.hash, stage.warmups))

    def _begin(self, message: Begin) -> None:
        """Once, however often it is told."""
        if self._stage is None or self._has_ended:
            return
        self._send(Begun(message.run))
        if self._run is not None:
            return
        stage, options = self._stage
        stage.clock.restart(message.t0_s)
        self._run = WorkerRun(
            message.run, stage, self._send, lambda request, row: self._tell(options, request, row)
        )
        self._begun.set()
