"""An append-only file of lines that is written behind the caller's back and survives a full disk.

`append` costs the caller next to nothing; a daemon thread writes at least each half second. The
file is unbuffered, so that what a write call took is in the system's hands even if this process
is killed. No format is known here.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Final, Protocol

from engines.api import CbbenchError

FLUSH_INTERVAL_S: Final = 0.4


class ByteStream(Protocol):
    """An unbuffered binary file: `write` may take less than it was given."""

    def write(self, data: bytes, /) -> int | None: ...

    def close(self) -> None: ...


OpenStream = Callable[[Path], ByteStream]


def open_unbuffered(path: Path) -> ByteStream:
    """Creates `path`; raises `FileExistsError` when it is there already."""
    return path.open("xb", buffering=0)


class LineFile:
    """Lines go in at `append`, in order, from one thread.

    After a failed write nothing is lost: the rest waits in memory, each later `append` raises
    `CbbenchError`, and `close` tries once more.
    """

    def __init__(self, path: Path, open_stream: OpenStream = open_unbuffered) -> None:
        self._path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._stream = open_stream(path)
        except FileExistsError:
            raise CbbenchError(
                f"{path} is there already, expected a new file; give the run another folder"
            ) from None
        except OSError as error:
            raise self._failure(error) from error
        self._lines: deque[str] = deque()
        self._unwritten = b""
        self._error: CbbenchError | None = None
        self._stop = threading.Event()
        self._closed = False
        self._thread = threading.Thread(target=self._flush_often, name="cell-flush", daemon=True)
        self._thread.start()

    def append(self, line: str) -> None:
        """Takes one line without its newline, then raises what an earlier write has met."""
        self._lines.append(line)
        if self._error is not None:
            raise self._error

    def close(self, last_line: str | None = None) -> None:
        """Writes everything left and closes; raises `CbbenchError` when that cannot be."""
        if self._closed:
            return
        self._closed = True
        if last_line is not None:
            self._lines.append(last_line)
        self._stop.set()
        self._thread.join()
        self._error = None
        self._flush()
        try:
            self._stream.close()
        except OSError as error:
            self._error = self._error or self._failure(error)
        if self._error is not None:
            raise self._error

    def _flush_often(self) -> None:
        while not self._stop.wait(FLUSH_INTERVAL_S) and self._error is None:
            self._flush()

    def _flush(self) -> None:
        taken = []
        while self._lines:
            taken.append(self._lines.popleft())
        text = "".join(line + "\n" for line in taken)
        # A token id or a name may hold a lone surrogate; JSON escapes it, so this cannot fail.
        self._unwritten += text.encode("ascii")
        try:
            while self._unwritten:
                written = self._stream.write(self._unwritten)
                self._unwritten = self._unwritten[written or 0 :]
        except OSError as error:
            self._error = self._failure(error)

    def _failure(self, error: OSError) -> CbbenchError:
        why = error.strerror or type(error).__name__
        return CbbenchError(
            f"cannot write {self._path}: {why}; what was written before is kept and readable, "
            "free some space or give the run another folder"
        )
