"""A client in this process: one loop, one pool of connections, one schedule at a time.

It plays what it is given against one address, and knows nothing of models, caches or reports. Its
loop runs only inside the calls, in the thread that makes them.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import httpx

from engines.api import Clock, Request, RequestSource, Sink
from engines.remote.body import BodyWriter
from engines.remote.connections import Connections
from engines.remote.emission import Emitter
from engines.remote.event_loop import new_loop
from engines.remote.exchange import Wire, stamping
from engines.remote.key import without_key
from engines.remote.options import SCHEDULE_HEADER, RemoteOptions
from engines.remote.playing import Play
from engines.remote.texts import text_tools

_PREPARED_TOKENS: Final = 20_000_000  # bodies of more are written when they are sent


@dataclass(frozen=True, slots=True)
class Target:
    """Everything a client must know. Picklable; `key` is a secret and is never shown.

    `tokenizer` names the model whose tokenizer makes texts of ids. With `stamped` each request
    carries the instant at which it was due.
    """

    options: RemoteOptions
    model: str
    tokenizer: str
    limit: int
    key: str | None = None
    stamped: bool = False

    def __repr__(self) -> str:
        return f"Target({self.options.root!r}, {self.model!r})"


class Player(Protocol):
    """What plays schedules against a target: one client, or several processes of them."""

    def prepare(self, requests: Sequence[Request]) -> None:
        """Writes bodies beforehand."""
        ...

    def warm(self, connections: int) -> None:
        """Opens that many connections, in all."""
        ...

    def run(self, source: RequestSource, sink: Sink, clock: Clock) -> None: ...

    def stop(self) -> None:
        """From another thread; before a run it is not lost."""
        ...

    @property
    def retried(self) -> int:
        """How often the last run sent a request again."""
        ...

    def close(self) -> None: ...


class Client:
    """A `Player` in this process."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._loop = new_loop()
        self._play: Play | None = None
        self._stopping = False
        self._messages: dict[str, httpx.Request] = {}
        self._t0_s = 0.0
        self.retried = 0
        options = target.options
        tools = text_tools(options, target.tokenizer)
        self._count_text = tools.count
        self._decode = None if options.sends_ids else tools.decode
        self.aim(target.model)
        self._connections = self._loop.run_until_complete(_connect(target))

    @property
    def http(self) -> httpx.AsyncClient:
        return self._connections.client

    def aim(self, model: str) -> None:
        """From now on requests name this model."""
        self._writer = BodyWriter(self._target.options, model, self._decode)

    def call(self, question: Any) -> Any:
        """Runs a coroutine on the client's loop, between runs."""
        return self._loop.run_until_complete(question)

    def prepare(self, requests: Sequence[Request]) -> None:
        self._messages.clear()
        if sum(len(request.prompt_token_ids) for request in requests) <= _PREPARED_TOKENS:
            self._messages = {r.request_id: self._message(r) for r in requests}

    def warm(self, connections: int) -> None:
        self._loop.run_until_complete(self._connections.warm(connections))

    def run(self, source: RequestSource, sink: Sink, clock: Clock) -> None:
        options = self._target.options
        play = Play(
            source,
            self._message_of,
            limit=self._target.limit,
            idle_timeout_s=options.idle_timeout,
            grace_s=options.grace,
        )
        wire = Wire(
            client=self._connections.client,
            clock=clock,
            emitter=Emitter(sink, clock, self._loop, play.wake),
            retries=options.connection_retries,
            redact=self._redact,
            count_text=self._count_text,
        )
        self._t0_s = time.perf_counter() - clock.now()
        self._loop.set_exception_handler(lambda _, seen: play.fail(_error_of(seen)))
        self._play = play
        try:
            if not self._stopping:
                self._loop.run_until_complete(play.run(wire))
        finally:
            self._play = None
            self._stopping = False
            self.retried = play.retried

    def stop(self) -> None:
        self._stopping = True
        play = self._play
        if play is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(play.stop)

    def forget_stop(self) -> None:
        """A stop that came after its run had ended by itself does not concern the next one."""
        self._stopping = False

    def wake(self) -> None:
        """From another thread: the source has something new."""
        play = self._play
        if play is not None:
            self._loop.call_soon_threadsafe(play.wake)

    def close(self) -> None:
        if not self._loop.is_closed():
            self._loop.run_until_complete(self._connections.close())
            self._loop.run_until_complete(self._loop.shutdown_default_executor())
            self._loop.close()

    def _message_of(self, request: Request) -> httpx.Request:
        """What was prepared for it, or is written now."""
        message = self._messages.get(request.request_id) or self._message(request)
        if self._target.stamped:
            message.headers[SCHEDULE_HEADER] = repr(self._t0_s + request.scheduled_s)
        return message

    def _message(self, request: Request) -> httpx.Request:
        options = self._target.options
        return self._connections.client.build_request(
            "POST",
            options.root + options.path,
            content=self._writer.write(request),
            headers={"content-type": "application/json", "accept": "text/event-stream"},
        )

    def _redact(self, text: str) -> str:
        return without_key(text, self._target.key)


async def _connect(target: Target) -> Connections:
    key, options = target.key, target.options
    return Connections(
        options.root,
        limit=target.limit,
        keepalive_s=options.keepalive,
        connect_timeout_s=options.connect_timeout,
        headers={} if key is None else {"authorization": f"Bearer {key}"},
        traces=[stamping()],
    )


def _error_of(seen: Mapping[str, Any]) -> BaseException:
    """What a callback of the loop has met."""
    error = seen.get("exception")
    return error if isinstance(error, BaseException) else RuntimeError(str(seen.get("message")))
