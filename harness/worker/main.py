"""Where a worker process begins: its own session, its log, its threads, and only then imports.

Imports no library that reads `OMP_NUM_THREADS` when it loads; that must be set before.
"""

from __future__ import annotations

import io
import os
import signal
import sys
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Final

_THREAD_VARIABLES: Final = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "NUMBA_NUM_THREADS",
)


def serve(connection: Connection, log: Path, threads: int | None, parent_pid: int) -> None:
    """The target of a worker process."""
    enter_own_session()
    _write_output_to(log)
    use_threads(threads)
    from harness.worker.service import Worker, parent_is_gone

    Worker(connection, parent_pid, parent_is_gone).serve()


def enter_own_session() -> None:
    """SIGINT arrives blocked and stays without effect: the parent decides when a worker ends."""
    os.setsid()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT, signal.SIGTERM})


def use_threads(threads: int | None) -> None:
    """For every library that is imported after this; `None` leaves the environment's own."""
    if threads is not None:
        os.environ.update(dict.fromkeys(_THREAD_VARIABLES, str(threads)))


def _write_output_to(log: Path) -> None:
    """What libraries print would tear the live display; in the log it helps after a crash."""
    handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(handle, 1)
    os.dup2(handle, 2)
    os.close(handle)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(line_buffering=True, errors="backslashreplace")
