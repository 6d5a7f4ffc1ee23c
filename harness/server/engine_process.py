"""The HTTP process's handle on the engine's process: starts it, talks to it, sees it go.

Two threads stand between the pipe and the event loop, so that neither a full pipe nor a stopped
engine can hold it up. Messages are handed over in order; the last is always `Gone`.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import threading
from collections.abc import Callable
from multiprocessing import connection
from queue import SimpleQueue
from typing import Final, cast

import psutil

from engines.api import Request, RequestId
from engines.registry import BuildContext, EngineSpec
from harness.server.engine_side import serve_engine
from harness.server.messages import Build, Close, Down, Gone, Up, Work
from harness.worker.process import bury, how_it_ended, interrupts_held_back, kill_group

_LOOK_EVERY_S: Final = 0.25


class EngineProcess:
    """One spawned engine. `deliver` is called from a thread, with every message and then `Gone`."""

    def __init__(
        self, spec: EngineSpec, context: BuildContext, deliver: Callable[[Up], None]
    ) -> None:
        self._deliver = deliver
        spawning = multiprocessing.get_context("spawn")
        self._connection, theirs = spawning.Pipe()
        self._process = spawning.Process(
            target=serve_engine,
            args=(theirs, context.threads),
            name=f"cbbench engine {spec.label}",
            daemon=True,
        )
        with interrupts_held_back():
            self._process.start()
        theirs.close()
        self._outbox: SimpleQueue[Down | None] = SimpleQueue()
        self._outbox.put(Build(spec, context))
        self._reader = threading.Thread(target=self._read, name="engine reader", daemon=True)
        self._writer = threading.Thread(target=self._write, name="engine writer", daemon=True)
        self._reader.start()
        self._writer.start()

    @property
    def pid(self) -> int:
        return cast(int, self._process.pid)

    def send(self, submit: tuple[Request, ...], cancel: tuple[RequestId, ...]) -> None:
        """Never blocks, and never raises for a process that is gone: `Gone` tells that."""
        self._outbox.put(Work(submit, cancel))

    def close(self) -> None:
        """Asks it to finish what it has and leave; returns at once."""
        self._outbox.put(Close())

    def end(self, patience_s: float) -> None:
        """Waits a bounded time for it to leave, then ends it and all that it started."""
        self._reader.join(patience_s)
        if self._reader.is_alive():
            kill_group(self._process)
        self._reader.join()
        self._outbox.put(None)
        self._writer.join()

    def _read(self) -> None:
        """Also the only one that reaps the process, so that its id stays its own until then."""
        with contextlib.suppress(EOFError, OSError):
            while True:
                if connection.wait([self._connection], _LOOK_EVERY_S):
                    self._deliver(cast(Up, self._connection.recv()))
                elif self._has_ended():
                    break
        bury(self._process, patience_s=1.0)
        self._connection.close()
        self._deliver(Gone(how_it_ended(self._process.exitcode)))

    def _has_ended(self) -> bool:
        """It is looked at itself, since a child of its own could hold the pipe open."""
        try:
            return bool(psutil.Process(self.pid).status() == psutil.STATUS_ZOMBIE)
        except psutil.NoSuchProcess:
            return True

    def _write(self) -> None:
        with contextlib.suppress(OSError):
            while (message := self._outbox.get()) is not None:
                self._connection.send(message)
