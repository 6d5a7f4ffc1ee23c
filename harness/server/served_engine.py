"""Runs an engine on requests that come from outside, again and again, whatever a run raises.

A step that raises fails the requests it had; the engine is emptied and runs on. Knows no pipe and
no process.
"""

from __future__ import annotations

import math
import sys
import traceback
from collections.abc import Callable
from typing import Final

from engines.api import (
    BLOCKED,
    Clock,
    Due,
    End,
    Engine,
    Finish,
    Request,
    RequestId,
    StepEvents,
)
from harness.server.messages import StepFailed, Up
from harness.worker.errors import error_text
from workloads.sources import QueueSource

MOST_FAILURES: Final = 3  # of runs in a row that delivered no token
GAVE_UP: Final = 70  # the exit code then
QUIET_S: Final = 2.0


class ServedEngine:
    """The engine's source and sink, and the loop around its runs.

    It knows who has been taken and not been ended, and ends them when an engine that raised did
    not. A source that is open never says that nobody will come, and an engine that waits for a
    full batch would wait for ever; so when somebody waits and nobody has come for `quiet_s`, it
    says so.
    """

    def __init__(
        self,
        engine: Engine,
        source: QueueSource,
        clock: Clock,
        send: Callable[[Up], None],
        quiet_s: float = QUIET_S,
    ) -> None:
        self._engine = engine
        self._source = source
        self._clock = clock
        self._send = send
        self._taken: set[RequestId] = set()
        self._failures = 0
        self._quiet_s = quiet_s
        self._quiet_from_s = math.inf  # nobody has been taken yet
        self._looked_s = -math.inf

    def run(self) -> int:
        """The exit code, once the source has ended or the engine has failed too often."""
        while True:
            try:
                self._engine.run(self, self, self._clock)
                if isinstance(self._source.next_due(), End):
                    return 0
                raise RuntimeError("the engine returned although its source is open")
            except Exception as error:  # the server's edge: an error ends requests, not the server
                traceback.print_exc(file=sys.stderr)
                self._failures += 1
                self._end_taken(error_text(error))
                self._send(StepFailed(error_text(error)))
                if self._failures >= MOST_FAILURES:
                    return GAVE_UP
            self._engine.reset()

    def take(self, now_s: float, limit: int) -> list[Request]:
        taken = self._source.take(now_s, limit)
        self._taken.update(request.request_id for request in taken)
        self._looked_s = now_s
        if taken:
            self._quiet_from_s = taken[-1].scheduled_s + self._quiet_s
        return taken

    def next_due(self) -> Due:
        """As of the last `take`: an answer that changed by itself could be missed."""
        due = self._source.next_due()
        if due != math.inf or not self._taken:
            return due
        return BLOCKED if self._looked_s >= self._quiet_from_s else self._quiet_from_s

    def cancelled(self) -> tuple[RequestId, ...]:
        return self._source.cancelled()

    def wait(self, until_s: float) -> None:
        quiet_s = self._quiet_from_s
        if self._taken and self._looked_s < quiet_s:
            until_s = min(until_s, quiet_s)
        self._source.wait(until_s)

    def emit(self, events: StepEvents) -> None:
        if events.request_ids:
            self._failures = 0
        self._taken.difference_update(finish.request_id for finish in events.finished)
        self._send(events)

    def _end_taken(self, error: str) -> None:
        left = [Finish(name, "failed", reason=error) for name in self._taken]
        self._taken.clear()
        if left:
            self._send(StepEvents(self._clock.now(), finished=left))
