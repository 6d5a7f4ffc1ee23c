"""HTTP/1.1 connections that give the bytes of an answer as they arrive, kept for the next request.

On `http.client`, whose `read1` returns with whatever has come. The streaming readers of locust's
own clients wait until a block of fixed size is full and would hand tokens over late, in heaps.
Follows no redirect, asks no proxy and reads no environment. Under gevent it is cooperative, since
locust replaces the sockets below it.
"""

from __future__ import annotations

import select
import socket
import ssl
import time
from collections import deque
from collections.abc import Callable, Mapping
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import Final
from urllib.parse import urlsplit

READ_BYTES: Final = 65536
CONNECT_TIMEOUT_S: Final = 10.0
KEPT_IDLE_S: Final = 4.0  # many servers close after 5 s, and one that closes loses a request


class Connection:
    """One connection, used by one request at a time. Raises `OSError` and `HTTPException`."""

    def __init__(self, http: HTTPConnection) -> None:
        self._http = http
        http.connect()
        assert http.sock is not None
        self._socket: socket.socket = http.sock
        self._response: HTTPResponse | None = None
        self._left: int | None = None
        self._whole = True
        self.aborted = False
        self.idle_since_s = 0.0

    def send(
        self, method: str, path: str, body: bytes, headers: Mapping[str, str], timeout_s: float
    ) -> None:
        """A timeout, of the head or of the body, is a `TimeoutError`."""
        self._whole = False
        self._socket.settimeout(timeout_s)
        self._http.request(method, path, body or None, dict(headers))

    def await_head(self, timeout_s: float) -> tuple[int, str]:
        """Status and content type. A timeout is a `TimeoutError`."""
        self._socket.settimeout(timeout_s)
        self._response = self._http.getresponse()
        self._left = self._response.length
        return self._response.status, self._response.headers.get_content_type()

    def read(self, timeout_s: float) -> bytes:
        """What has come of the body, at least one byte; nothing once it is whole."""
        assert self._response is not None
        if self._left == 0:
            return self._end()
        self._socket.settimeout(timeout_s)
        data = self._response.read1(min(READ_BYTES, self._left or READ_BYTES))
        if not data:
            if self._left:
                raise HTTPException(f"the body ended {self._left} bytes early")
            return self._end()
        if self._left is not None:
            self._left -= len(data)
        return data

    def abort(self) -> None:
        """From another thread or greenlet: ends whatever is waited for."""
        self.aborted = True
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            return

    def close(self) -> None:
        if self._response is not None:
            self._response.close()
        self._http.close()
        self._socket.close()

    @property
    def is_reusable(self) -> bool:
        """Whether the last answer was read to its end and the server keeps the connection."""
        return self._whole and not self.aborted and self._http.sock is not None

    def is_quiet(self) -> bool:
        """Whether the other side has sent nothing unasked, its goodbye included."""
        try:
            readable, _, _ = select.select([self._socket], [], [], 0)
        except (OSError, ValueError):
            return False
        return not readable

    def _end(self) -> bytes:
        assert self._response is not None
        self._response.close()
        self._whole = True
        return b""


class Connections:
    """Those to one server. The one used last is used next, so that few are enough."""

    def __init__(self, base_url: str, clock: Callable[[], float] = time.perf_counter) -> None:
        parts = urlsplit(base_url)
        assert parts.hostname is not None
        self._host, self._port = parts.hostname, parts.port
        self._tls = ssl.create_default_context() if parts.scheme == "https" else None
        self._clock = clock
        self._idle: deque[Connection] = deque()
        self._closed = False
        self.path_prefix = parts.path.rstrip("/")

    @property
    def num_idle(self) -> int:
        return len(self._idle)

    def open(self) -> Connection:
        """A new one. Raises `OSError`."""
        if self._tls is not None:
            return Connection(
                HTTPSConnection(
                    self._host, self._port, timeout=CONNECT_TIMEOUT_S, context=self._tls
                )
            )
        return Connection(HTTPConnection(self._host, self._port, timeout=CONNECT_TIMEOUT_S))

    def take(self) -> Connection:
        """An idle one that the server has not closed, or else a new one."""
        while self._idle:
            connection = self._idle.pop()
            idle_s = self._clock() - connection.idle_since_s
            if idle_s < KEPT_IDLE_S and connection.is_quiet():
                return connection
            connection.close()
        return self.open()

    def give_back(self, connection: Connection) -> None:
        """Keeps it for the next request, or closes it if that cannot be."""
        if self._closed or not connection.is_reusable:
            connection.close()
            return
        connection.idle_since_s = self._clock()
        self._idle.append(connection)

    def close(self) -> None:
        """Those that are in use are closed when they are given back."""
        self._closed = True
        while self._idle:
            self._idle.pop().close()
