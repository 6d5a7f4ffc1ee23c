"""The engine's process: builds the engine, feeds it from the pipe, sends what it delivers.

The main thread runs the engine, a reader takes work from the pipe, a sender writes to it, so that
no step waits for the other process. When the pipe ends, the server is gone and this process goes
at once.
"""

from __future__ import annotations

import gc
import os
import sys
import threading
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from queue import SimpleQueue

from engines.api import CbbenchError, Engine
from engines.clock import WallClock
from harness.server.messages import Build, Close, Down, NotBuilt, Ready, Up, Work
from harness.server.served_engine import ServedEngine
from harness.worker.errors import error_text
from harness.worker.main import enter_own_session, use_threads
from workloads.sources import QueueSource


def serve_engine(connection: Connection, threads: int | None) -> None:
    """The target of the engine process."""
    enter_own_session()
    os.dup2(2, 1)  # what libraries print is no part of what the server says
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
            self._outbox.put(NotBuilt("crash", error_text(error)))
            raise _Refused from error
        gc.collect()
        gc.freeze()
        self._outbox.put(ready)
        return engine

    def _read(self) -> None:
        while True:
            try:
                message: Down = self._connection.recv()
            except (EOFError, OSError):
                self._parent_gone()
                return
            except Exception:  # what cannot be read; nothing after it can be trusted
                traceback.print_exc(file=sys.stderr)
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


def _build(message: Build) -> tuple[Engine, Ready]:
    from engines.models.text_data import text_data
    from engines.registry import build_engine, installed_engines

    engine = build_engine(message.spec, installed_engines()[message.spec.name], message.context)
    return engine, Ready(engine.describe(), text_data(message.context.model))
