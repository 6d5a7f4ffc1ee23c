"""The engine's process: builds the engine, feeds it from the pipe, sends what it delivers.

The main thread runs the engine, a reader takes work from the pipe, a sender writes to it, so that
no step waits for the other process. When the pipe ends, the server is gone and this process goes
at once. A step that raises fails the requests it had; the engine is emptied and runs on.
"""

from __future__ import annotations

import gc
import sys
import threading
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from queue import SimpleQueue
from typing import Final

from engines.api import (
    CbbenchError,
    Clock,
    Due,
    End,
    Engine,
    Finish,
    Request,
    RequestId,
    StepEvents,
)
from engines.clock import WallClock
from harness.server.messages import Build, Close, Down, NotBuilt, Ready, StepFailed, Up, Work
from harness.show.text import one_line
from harness.worker.main import enter_own_session, use_threads
from workloads.sources import QueueSource

MOST_FAILURES: Final = 3  # of runs in a row that delivered no token
GAVE_UP: Final = 70  # the exit code then


def serve_engine(connection: Connection, threads: int | None) -> None:
    """The target of the engine process."""
    enter_own_session()
    use_threads(threads)
    from harness.worker.service import parent_is_gone

    EngineSide(connection, parent_is_gone).serve()


class EngineSide:
    """One engine behind one pipe, until `Close` or until the server is gone."""

    def __init__(self, connection: Connection, parent_gone: Callable[[], None]) -> None:
        self._connection = connection
        self._parent_gone = parent_gone
        self._outbox: SimpleQueue[Up | None] = SimpleQueue()
        self._clock = WallClock()
        self._source = QueueSource(self._clock)

    def serve(self) -> None:
        """Raises `SystemExit` when the engine cannot be built, or fails again and again."""
        sender = threading.Thread(target=self._send_all, name="sender", daemon=True)
        sender.start()
        try:
            engine = self._build()
            served = ServedEngine(engine, self._source, self._clock, self._outbox.put)
            exit_code = served.run()
            engine.close()
        except _Refused:
            exit_code = 1
        self._outbox.put(None)
        sender.join()
        sys.exit(exit_code)

    def _build(self) -> Engine:
        message = self._connection.recv()
        assert isinstance(message, Build), f"not a first message: {message!r}"
        threading.Thread(target=self._read, name="reader", daemon=True).start()
        try:
            engine, ready = _build(message)
        except CbbenchError as error:
            self._outbox.put(NotBuilt("mistake", str(error)))
            raise _Refused from error
        except Exception as error:  # the process's edge: the parent says how it ended
            traceback.print_exc(file=sys.stderr)
            self._outbox.put(NotBuilt("crash", _error_text(error)))
            raise _Refused from error
        gc.collect()
        gc.freeze()
        self._outbox.put(ready)
        return engine

    def _read(self) -> None:
        while True:
            try:
                message: Down = self._connection.recv()
            except Exception:  # the end, or what cannot be read: nothing after it can be trusted
                self._parent_gone()
                return
            match message:
                case Work(submit, cancel):
                    for request in submit:
                        self._source.submit(request)
                    for name in cancel:
                        self._source.cancel(name)
                case Close():
                    self._source.close()

    def _send_all(self) -> None:
        while (message := self._outbox.get()) is not None:
            try:
                self._connection.send(message)
            except OSError:
                self._parent_gone()
                return


class _Refused(Exception):
    """The engine could not be built; the parent has been told why."""


class ServedEngine:
    """Runs an engine on an open source again and again, whatever a run raises.

    Also the engine's source and sink: it knows who has been taken and not been ended, and ends
    them when an engine that raised did not.
    """

    def __init__(
        self,
        engine: Engine,
        source: QueueSource,
        clock: Clock,
        send: Callable[[Up], None],
    ) -> None:
        self._engine = engine
        self._source = source
        self._clock = clock
        self._send = send
        self._taken: set[RequestId] = set()
        self._failures = 0

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
                self._end_taken(_error_text(error))
                self._send(StepFailed(_error_text(error)))
                if self._failures >= MOST_FAILURES:
                    return GAVE_UP
            self._engine.reset()

    def take(self, now_s: float, limit: int) -> list[Request]:
        taken = self._source.take(now_s, limit)
        self._taken.update(request.request_id for request in taken)
        return taken

    def next_due(self) -> Due:
        return self._source.next_due()

    def cancelled(self) -> tuple[RequestId, ...]:
        return self._source.cancelled()

    def wait(self, until_s: float) -> None:
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


def _build(message: Build) -> tuple[Engine, Ready]:
    from engines.models.text_data import text_data
    from engines.registry import build_engine, installed_engines

    engine = build_engine(message.spec, installed_engines()[message.spec.name], message.context)
    return engine, Ready(engine.describe(), text_data(message.context.model))


def _error_text(error: BaseException) -> str:
    first = (str(error).strip() or "no message").splitlines()[0]
    return one_line(f"{type(error).__name__}: {first}")
