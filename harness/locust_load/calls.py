"""A request on its way to the server: made ready before it is due, then run, or ended early."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from engines.api import Request
from engines.remote.body import BodyWriter
from harness.locust_load.connections import Connection, Connections
from harness.locust_load.exchange import Answer, Exchange, not_connected
from harness.locust_load.key import ApiKey


class Caller:
    """Makes calls to one server. `count_text` counts where the server does not."""

    def __init__(
        self,
        connections: Connections,
        writer: BodyWriter,
        key: ApiKey,
        clock: Callable[[], float],
        count_text: Callable[[str], int] | None = None,
    ) -> None:
        self.connections = connections
        self.clock = clock
        self.count_text = count_text
        self.idle_timeout_s = writer.options.idle_timeout
        self.path = connections.path_prefix + writer.options.path
        self.headers = key.headers()
        self._writer = writer
        self._key = key

    def prepare(self, request: Request) -> Call:
        """Ready to run: the body written out, a connection open if the server lets us in."""
        call = Call(self, request, self._writer.write(request))
        call.connect()
        return call

    def without_key(self, answer: Answer) -> Answer:
        return replace(answer, reason=self._key.hide_in(answer.reason))


class Call:
    """Runs once. Of `run` and `abort`, from two threads, either may come first."""

    def __init__(self, caller: Caller, request: Request, body: bytes) -> None:
        self._caller = caller
        self._request = request
        self._body = body
        self._connection: Connection | None = None
        self._exchange: Exchange | None = None
        self._error: OSError | None = None

    def connect(self) -> None:
        """A failure is kept, and told when the call is run and it fails again."""
        try:
            self._connection = self._caller.connections.take()
        except OSError as error:
            self._error = error

    def run(self) -> Answer:
        if self._connection is None:
            self.connect()
        if self._connection is None:
            assert self._error is not None
            return self._caller.without_key(not_connected(self._error, self._caller.clock()))
        exchange = self._exchange = Exchange(
            self._connection,
            self._caller.clock,
            self._caller.idle_timeout_s,
            self._request.max_tokens,
            self._caller.count_text,
        )
        try:
            answer = exchange.run(self._caller.path, self._body, self._caller.headers)
        finally:
            self.release()
        return self._caller.without_key(answer)

    def abort(self) -> None:
        if self._connection is not None:
            self._connection.abort()

    def cancelled(self, reason: str) -> Answer:
        """What has come so far, of a call that is given up."""
        if self._exchange is None:
            return Answer(None, self._caller.clock(), "cancelled", None, reason)
        return self._exchange.cancelled(reason)

    def release(self) -> None:
        """Gives the connection back, for the next call if it is still good."""
        connection, self._connection = self._connection, None
        if connection is not None:
            self._caller.connections.give_back(connection)
