"""A server of the user's own, started for a run: waited for, drained, and always ended.

No shell is involved. The server's output goes where this process's own goes, which in a run is the
engine's log. Knows nothing of what the server serves.
"""

from __future__ import annotations

import json
import os
import shlex
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from http.client import HTTPException
from pathlib import Path
from typing import Any, Final
from urllib.error import URLError
from urllib.request import ProxyHandler, Request, build_opener

from engines.api import CbbenchError
from engines.remote.completion import shortened
from engines.remote.key import without_key

_POLL_S: Final = 0.2
_PATIENCE_S: Final = 5.0
_LINGER_S: Final = 0.1  # a port may listen a moment longer than its server lives


class ManagedServer:
    """Starts in the constructor. `wait` until it answers, `close` to see it gone."""

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        stop_timeout_s: float,
        folder: Path | None = None,
        key: str | None = None,
    ) -> None:
        """`folder` is the server's own and goes with it, however this process ends.

        `key` is a secret that no output of the server's is passed on with.
        """
        self._key = key
        self._command = command
        self._stop_timeout_s = stop_timeout_s
        supervisor = [sys.executable, "-m", "engines.remote.supervisor", str(stop_timeout_s)]
        supervisor += ["--"] if folder is None else [str(folder), "--"]
        self._supervisor = subprocess.Popen(
            [*supervisor, *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **environment},
        )
        assert self._supervisor.stdin is not None
        with suppress(BrokenPipeError):
            self._supervisor.stdin.write(f"{key or ''}\n".encode())
            self._supervisor.stdin.flush()
        self._ended: str | None = None

    @property
    def closing_s(self) -> float:
        """The longest that `close` may take."""
        return self._stop_timeout_s + _PATIENCE_S

    def wait(self, url: str, timeout_s: float) -> None:
        """Until `url` is answered with 200, and by no other than this server, as far as it lives.

        Raises `CbbenchError` when the server has ended, or does not answer in time; it is closed
        then.
        """
        deadline_s = time.monotonic() + timeout_s
        while not _answers(url, self._key) or self.ended() is not None:
            ended = self.ended()
            if ended is None and time.monotonic() > deadline_s:
                self.close()
                ended = f"did not answer {url} within {timeout_s:g} s (start_timeout)"
            if ended is not None:
                words = shlex.join(without_key(word, self._key) for word in self._command)
                raise CbbenchError(f"the server {words!r} {ended}")
            time.sleep(_POLL_S)

    def ended(self) -> str | None:
        """How it ended with its last words, or `None` while it lives."""
        if self._ended is None and self._supervisor.poll() is not None:
            assert self._supervisor.stdout is not None
            self._ended = _how(self._supervisor.stdout.read())
        return self._ended

    def fallen(self, port: int) -> str | None:
        """How it ended, whoever listens at `port` now; waits for the word where nobody does."""
        deadline_s = time.monotonic() + self.closing_s
        time.sleep(_LINGER_S)
        while (ended := self.ended()) is None and not listens(port):
            if time.monotonic() > deadline_s:
                return None
            time.sleep(_POLL_S)
        return ended

    def close(self) -> None:
        """Lets it drain, then ends it with everything that it started."""
        assert self._supervisor.stdin is not None
        self._supervisor.stdin.close()
        try:
            self._supervisor.wait(self.closing_s)
        except subprocess.TimeoutExpired:
            self._supervisor.kill()  # the system kills the server with it
            self._supervisor.wait()
        if self._supervisor.stdout is not None:
            self.ended()
            self._supervisor.stdout.close()


def free_port() -> int:
    """A port of this machine that nobody listens on just now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=_PATIENCE_S).close()
    except OSError:
        return False
    return True


def filled_in(command: Sequence[str], values: Mapping[str, str]) -> list[str]:
    """Each word with `{name}` replaced by its value; other braces stay."""
    filled = []
    for word in command:
        for name, value in values.items():
            word = word.replace("{" + name + "}", value)
        filled.append(word)
    return filled


def _answers(url: str, key: str | None) -> bool:
    headers = {} if key is None else {"Authorization": f"Bearer {key}"}
    try:
        opener = build_opener(ProxyHandler({}))
        with opener.open(Request(url, headers=headers), timeout=_PATIENCE_S) as response:
            return bool(response.status == 200)
    except (URLError, HTTPException, OSError, ValueError):
        return False


def _how(told: bytes) -> str:
    try:
        value: dict[str, Any] = json.loads(told)
    except ValueError:
        return "ended: its supervisor was killed"
    code, last = value.get("exit_code"), value.get("last") or ["no words"]
    how = "could not be started" if code is None else f"ended with exit code {code}"
    return f"{how}; its last words: {shortened(' / '.join(last[-4:]))}"
