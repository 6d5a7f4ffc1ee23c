"""Stands between a worker and the server it started, so that the server never outlives the worker.

Runs the command that follows `--` in a process group of its own, passes its output on, and ends it,
with everything that it started in turn, when the standard input ends: that is the worker's pipe,
and it ends however the worker does. The input's first line is a secret to be taken out of that
output, or empty. SIGTERM first, SIGKILL after the patience given. When this
process itself is killed, the system kills the command. Tells on the standard output, as one line of
JSON, how the command ended. A folder that is named before `--` is removed when it has.

    python -m engines.remote.supervisor 30 FOLDER -- vllm serve FOLDER/MODEL --port 8000
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator
from typing import IO, Final

import psutil

_PR_SET_PDEATHSIG: Final = 1
_PR_SET_CHILD_SUBREAPER: Final = 36
_LAST_LINES: Final = 8
_LINE_BYTES: Final = 2000
_LOOK_EVERY_S: Final = 0.1


def main() -> None:
    begin = sys.argv.index("--")
    (patience_s, *folders), command = sys.argv[1:begin], sys.argv[begin + 1 :]
    os.setsid()
    signals: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, _: signals.append(number))
    try:
        _supervise(command, float(patience_s), signals, _first_line())
    finally:
        for folder in folders:
            shutil.rmtree(folder, ignore_errors=True)


def _supervise(command: list[str], patience_s: float, signals: list[int], secret: bytes) -> None:
    """Until the command has ended. A signal in `signals` is a wish to end, however many come."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    try:
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            process_group=0,
            preexec_fn=_die_with_parent,
        )
    except OSError as error:
        _tell(None, [f"{command[0]}: {error.strerror}"])
        return
    last: deque[str] = deque(maxlen=_LAST_LINES)
    assert child.stdout is not None
    passing = threading.Thread(target=_pass_on, args=(child.stdout, last, secret), daemon=True)
    passing.start()
    while child.poll() is None and not signals and not _input_has_ended():
        time.sleep(_LOOK_EVERY_S)
    _end(child, patience_s)
    passing.join(1.0)
    _tell(child.returncode, list(last))


def _first_line() -> bytes:
    line = b""
    while not line.endswith(b"\n") and (byte := os.read(0, 1)):
        line += byte
    return line.strip()


def _input_has_ended() -> bool:
    """Whether the worker has gone, or has closed its end. Never blocks."""
    try:
        ready, _, _ = select.select([0], [], [], 0)
        return bool(ready) and not os.read(0, 4096)
    except OSError:
        return True


def _end(child: subprocess.Popen[bytes], patience_s: float) -> None:
    """SIGTERM to the command, time to drain, then SIGKILL to all that is left of it."""
    if child.poll() is None:
        child.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(patience_s)
    while left := psutil.Process().children(recursive=True):
        for process in left:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(left, timeout=1.0)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
    child.poll()


def _pass_on(stream: IO[bytes], last: deque[str], secret: bytes) -> None:
    """To the worker's log; the last lines are kept for the sentence about the end."""
    for line in _lines(stream, secret):
        with contextlib.suppress(OSError):
            os.write(2, line)
        text = line.decode(errors="replace").strip()
        if text:
            last.append(text)


def _lines(stream: IO[bytes], secret: bytes) -> Iterator[bytes]:
    """Long ones in pieces, all without the secret, also where a piece would end within it."""
    held = b""
    while piece := stream.readline(_LINE_BYTES):
        line = held + piece
        if secret:
            line = line.replace(secret, b"[key]")
        end = len(line) if line.endswith(b"\n") else max(0, len(line) - len(secret) + 1)
        line, held = line[:end], line[end:]
        yield line
    yield held


def _tell(exit_code: int | None, last: list[str]) -> None:
    with contextlib.suppress(OSError):
        print(json.dumps({"exit_code": exit_code, "last": last}), flush=True)


def _die_with_parent() -> None:
    """In the child, before it becomes the command."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _prctl(option: int, value: int) -> None:
    """Linux only; elsewhere the pipe alone must do."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


if __name__ == "__main__":
    main()
