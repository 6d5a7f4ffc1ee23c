"""One run as the master sees it: its workers prepared, begun, heard, ended, and the records closed.

One thread drives it from top to bottom; messages only wake it. In a local run the only worker is
this very process.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Final
from uuid import uuid4

from engines.api import CbbenchError
from engines.clock import WallClock
from harness.locust_load import closing
from harness.locust_load.crew import Crew, Waiting, Wires
from harness.locust_load.layout import Layout
from harness.locust_load.messages import Ack, End, Report, ToMaster
from harness.locust_load.recording import Recording

logger = logging.getLogger("cbbench")
_LEAD_S: Final = 0.25
_TOLD_WITHIN_S: Final = 8.0
_LOOK_EVERY_S: Final = 0.25


class LoadRun:
    """`on_complete` is called when every request has ended, `on_error` when the run cannot go on.

    Both are called in a thread of the run's own, or of whoever told it.
    """

    def __init__(
        self,
        layout: Layout,
        wires: Wires,
        on_complete: Callable[[], None],
        on_error: Callable[[CbbenchError], None],
        locust_version: str,
    ) -> None:
        self.name = uuid4().hex[:12]
        self._layout = layout
        self._on_complete = on_complete
        self._on_error = on_error
        self._locust_version = locust_version
        self._waiting = Waiting()
        self._crew = Crew(self.name, wires, self._waiting)
        self._clock = WallClock()
        self._has_users = False
        self._recording: Recording | None = None
        self._lost: set[str] = set()

    def start(self) -> None:
        threading.Thread(target=self._drive, name="load run", daemon=True).start()

    def users_are_there(self) -> None:
        self._has_users = True
        self._waiting.tell()

    def receive(self, worker: str, message: ToMaster) -> None:
        if message.run != self.name:
            return
        if not isinstance(message, Report):
            self._crew.hear(worker, message)
        elif self._take(worker, message):
            self._crew.send(worker, Ack(self.name, message.number))
        self._waiting.tell()

    def stop(self, grace_s: float) -> None:
        """Ends the run on every worker, and returns when all has been told or is lost."""
        if not self._waiting.stop():
            return
        recording = self._recording
        if recording is None:
            for worker in self._crew.members:
                self._crew.send(worker, End(self.name, grace_s))
            return
        collector = recording.collector
        was_complete = collector.is_complete
        for worker in filter(collector.owes, self._crew.members):
            self._crew.send(worker, End(self.name, grace_s))
        self._waiting.out(
            lambda: not any(map(self._crew.is_alive, filter(collector.owes, self._crew.members))),
            grace_s + _TOLD_WITHIN_S,
        )
        for worker in filter(collector.owes, self._crew.members):
            self._lose(worker, recording)
        recording.end(
            interrupted=not was_complete,
            workers=len(self._crew.members),
            warmups=self._crew.warmups,
            are_ours=self._crew.are_ours,
        )

    def close(self, encoding: str) -> closing.Outcome | None:
        """After `stop`. `None`, and no folder is left, when nothing was measured."""
        if self._recording is None:
            self._layout.folder.discard()
            return None
        facts = closing.describe_tally(
            self._recording.collector.tally,
            self._layout.options.users,
            len(self._crew.members),
            self._crew.clock_uncertainty_s,
            len(self._lost),
        )
        return self._recording.close(facts, encoding)

    def _drive(self) -> None:
        try:
            if self._waiting.until(lambda: self._has_users):
                self._crew.prepare(self._layout)
                offsets = self._crew.clock_offsets()
                recording = self._open()
                if recording is not None:
                    t0_s = time.perf_counter() + _LEAD_S
                    self._clock.restart(t0_s)
                    self._crew.begin(t0_s, offsets)
                    self._watch(recording)
        except CbbenchError as error:
            self._on_error(error)

    def _open(self) -> Recording | None:
        """`None` when the run was stopped meanwhile."""
        with self._waiting.changed:
            if self._waiting.stopping:
                return None
            setting = closing.Setting(
                self._layout.options,
                self._layout.plan,
                self._layout.prompt_form,
                self._layout.limits,
                len(self._crew.members),
                self._locust_version,
                self._layout.notes,
            )
            self._recording = Recording(self._layout, setting, self._crew.members, self._clock)
            return self._recording

    def _watch(self, recording: Recording) -> None:
        """Until every request has ended or the run is stopped; gives up who stays away."""
        collector = recording.collector
        while not self._waiting.until(lambda: collector.is_complete, _LOOK_EVERY_S):
            if self._waiting.stopping:
                return
            self._crew.tell_again()
            for worker in filter(collector.owes, self._crew.members):
                if self._crew.gone(worker):
                    self._lose(worker, recording)
        self._on_complete()

    def _lose(self, worker: str, recording: Recording) -> None:
        self._lost.add(worker)
        left = recording.collector.lose(worker, self._clock.now())
        logger.error("load worker %s was lost with %d requests, which have failed", worker, left)

    def _take(self, worker: str, report: Report) -> bool:
        """Whether to acknowledge it. What comes before the run has begun has nothing to tell."""
        if self._recording is None:
            return report.last
        try:
            return self._recording.collector.take(worker, report)
        except CbbenchError as error:  # the disk takes no more
            self._on_error(error)
            return True
