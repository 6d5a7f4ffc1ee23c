"""The parent's handle on a worker: starts it, talks to it, and makes sure that it goes.

Decides nothing about the experiment. A worker that dies becomes a `Failed` answer with its exit
and the last lines of its log, never an exception.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from multiprocessing import connection, resource_tracker
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Final, cast

from harness.places import without_places
from harness.show.text import one_line
from harness.worker.main import serve
from harness.worker.protocol import Answer, Built, Close, Command, Failed, Progress

_LOG_LINES: Final = 3
_LOG_BYTES: Final = 4096
CLOSE_WITHIN_S: Final = 5.0


class WorkerProcess:
    """One spawned worker. After `Failed` by death it is `dead` and takes no more commands."""

    def __init__(self, label: str, log: Path, threads: int | None) -> None:
        self.label = label
        self.log = log
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(
            target=serve,
            args=(theirs, log, threads, os.getpid()),
            name=f"cbbench worker {label}",
            daemon=True,
        )
        self.dead = False
        self._close_within_s = CLOSE_WITHIN_S
        with interrupts_held_back():
            self._process.start()
        theirs.close()

    @property
    def pid(self) -> int:
        return cast(int, self._process.pid)

    @property
    def waitable(self) -> connection.Connection:
        """For `multiprocessing.connection.wait`: ready when a message or the end has come."""
        return self._connection

    def send(self, command: Command) -> None:
        """Never raises for a worker that is gone: its death is told by `receive`."""
        try:
            self._connection.send(command)
        except OSError:
            return

    def receive(self) -> Answer | Progress:
        """The next message; blocks unless `waitable` is ready."""
        try:
            message = cast("Answer | Progress", self._connection.recv())
        except (EOFError, OSError):
            self._bury(patience_s=1.0)
            how = how_it_ended(self._process.exitcode)
            return Failed("crash", f"the worker process {how}{_last_words(self.log)}")
        if isinstance(message, Built):
            self._close_within_s = CLOSE_WITHIN_S + message.closing_s
        return message

    def dismiss(self) -> None:
        """Asks it to leave and does not wait."""
        if not self.dead:
            self.send(Close())

    def close(self) -> None:
        """After `dismiss`: waits a bounded time, then ends it and all that it started."""
        if not self.dead:
            self._bury(patience_s=self._close_within_s)

    def kill(self) -> None:
        """Ends it and all that it started at once. Again: no effect."""
        if not self.dead:
            self._bury(patience_s=0.0)

    def _bury(self, patience_s: float) -> None:
        self.dead = True
        bury(self._process, patience_s)
        self._connection.close()


def bury(process: BaseProcess, patience_s: float) -> None:
    """Ends a spawned process that has its own session, and all that it started."""
    connection.wait([process.sentinel], patience_s)
    kill_group(process)
    process.join()


def kill_group(process: BaseProcess) -> None:
    """Only for a process that has not been reaped: until then the id is its own."""
    try:
        os.killpg(cast(int, process.pid), signal.SIGKILL)
    except (ProcessLookupError, PermissionError):  # it had no session of its own yet
        process.kill()


def wait_any(workers: Iterable[WorkerProcess], timeout_s: float) -> list[WorkerProcess]:
    """Those of `workers` that have something to receive, after at most `timeout_s`."""
    by_waitable = {worker.waitable: worker for worker in workers}
    ready = connection.wait(list(by_waitable), timeout_s)
    return [by_waitable[cast(connection.Connection, waitable)] for waitable in ready]


@contextmanager
def interrupts_held_back() -> Iterator[None]:
    """A child inherits the blocked signals, so Ctrl-C cannot end it before it ignores them.

    The resource tracker is started first, since starting it would lift the block.
    """
    resource_tracker.ensure_running()
    held = {signal.SIGINT, signal.SIGTERM}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, held)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def how_it_ended(exit_code: int | None) -> str:
    """Half a sentence about a process that was not asked to end."""
    if exit_code is None or exit_code >= 0:
        return f"ended early with exit code {exit_code}"
    try:
        name = signal.Signals(-exit_code).name
    except ValueError:
        name = str(-exit_code)
    memory = ", as the system does when memory runs out" if name == "SIGKILL" else ""
    return f"was ended by signal {name}{memory}"


def _last_words(log: Path) -> str:
    """The last lines of a worker's log, for the sentence about its end."""
    try:
        with log.open("rb") as handle:
            handle.seek(max(0, log.stat().st_size - _LOG_BYTES))
            text = handle.read().decode(errors="replace")
    except OSError:
        return ""
    text = without_places(text)
    lines = [one_line(line).strip() for line in text.splitlines() if line.strip()][-_LOG_LINES:]
    return f"; its last words: {' / '.join(lines)}" if lines else ""
