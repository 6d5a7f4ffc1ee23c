"""A server on loopback that does exactly what a script says, and an engine that talks to it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field

import pytest

from engines.api import Finish, Request, StepEvents
from engines.clock import WallClock
from engines.registry import BuildContext
from engines.remote.catalogue import OPENAI
from engines.remote.openai import RemoteEngine, build
from workloads.sources import ClosedLoopSource, ScheduledSource

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


@dataclass
class Call:
    """One request as the server got it, and the way to answer it."""

    path: str
    headers: dict[str, str]
    body: dict
    writer: asyncio.StreamWriter
    number: int
    at_s: float

    async def raw(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def begin(self) -> None:
        await self.raw(HEAD)

    async def chunk(self, data: bytes) -> None:
        """One piece of a chunked body, framed."""
        await self.raw(b"%x\r\n%s\r\n" % (len(data), data))

    async def event(self, value: object) -> None:
        text = value if isinstance(value, str) else json.dumps(value)
        await self.chunk(f"data: {text}\n\n".encode())

    async def end(self) -> None:
        await self.raw(b"0\r\n\r\n")

    async def stream(self, *values: object) -> None:
        """A whole answer of these events."""
        await self.begin()
        for value in values:
            await self.event(value)
        await self.end()

    async def reply(self, status: int, value: object, headers: str = "") -> None:
        body = value if isinstance(value, bytes) else json.dumps(value).encode()
        head = f"HTTP/1.1 {status} X\r\ncontent-type: application/json\r\n{headers}"
        await self.raw(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)


Script = Callable[[Call], Awaitable[None]]


def text(piece, finish=None):
    return {"choices": [{"index": 0, "text": piece, "finish_reason": finish}]}


def usage(tokens, prompt=3, **more):
    counts = {"prompt_tokens": prompt, "completion_tokens": tokens, **more}
    return {"choices": [], "usage": counts}


async def three_tokens(call: Call) -> None:
    await call.stream(text("a"), text("b"), text("c", "length"), usage(3), "[DONE]")


MODELS = {"data": [{"id": "m", "owned_by": "nobody", "max_model_len": 512}]}


class ScriptedServer:
    """Runs in a thread of its own. Sockets are counted.

    `script` answers every POST with a body; `pages` go before all else, by path.
    """

    def __init__(self, script: Script) -> None:
        self.script = script
        self.pages: dict[str, Script] = {}
        self.calls: list[Call] = []
        self.sockets = 0
        self.open = 0
        self.most_open = 0
        self.models: object = MODELS
        self.headers = ""
        self.metrics: Callable[[], str] | None = None
        self._loop = asyncio.new_event_loop()
        self._tasks: set[asyncio.Task] = set()
        self._server = self._loop.run_until_complete(
            asyncio.start_server(self._serve, "127.0.0.1", 0, limit=2**24, backlog=1024)
        )
        self.port = self._server.sockets[0].getsockname()[1]
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    @property
    def posts(self) -> list[Call]:
        return [call for call in self.calls if call.body]

    def until(self, seen: Callable[[], bool], limit_s: float = 3.0) -> bool:
        """Whether something comes true within a time: the server runs on its own."""
        end_s = time.perf_counter() + limit_s
        while not (true := seen()) and time.perf_counter() < end_s:
            time.sleep(0.01)
        return true

    def close(self) -> None:
        async def finish() -> None:
            self._server.close()
            for _ in range(3):  # what was just accepted gets its task, to be ended with the others
                await asyncio.sleep(0)
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

        asyncio.run_coroutine_threadsafe(finish(), self._loop).result(5)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)
        self._loop.run_until_complete(asyncio.sleep(0.02))  # closed transports say so a turn later
        self._loop.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.sockets += 1
        self.open += 1
        self.most_open = max(self.most_open, self.open)
        try:
            while await self._serve_one(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            self.open -= 1
            writer.close()
            with contextlib.suppress(ConnectionError, asyncio.CancelledError):
                await writer.wait_closed()
            self._tasks.discard(task)

    async def _serve_one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        at_s = time.perf_counter()
        first, *lines = head.strip().split("\r\n")
        headers = {k.lower(): v.strip() for k, v in (line.split(":", 1) for line in lines)}
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        _, path, _ = first.split()
        value = json.loads(body) if body else {}
        call = Call(path, headers, value, writer, len(self.posts), at_s)
        self.calls.append(call)
        if path in self.pages:
            await self.pages[path](call)
        elif path == "/v1/models":
            await call.reply(200, self.models, self.headers)
        elif path == "/metrics" and self.metrics is not None:
            await call.reply(200, self.metrics().encode())
        elif body:
            await self.script(call)
        else:
            await call.reply(404, {"error": "no such page"})
        return not writer.is_closing()


class Collector:
    """A sink that keeps what was delivered, per request."""

    def __init__(self, inner=None) -> None:
        self.events: list[StepEvents] = []
        self.times: dict[str, list[float]] = {}
        self.ids: dict[str, list[int]] = {}
        self.ends: dict[str, Finish] = {}
        self._inner = inner

    def emit(self, events: StepEvents) -> None:
        self.events.append(events)
        for name, ids in zip(events.request_ids, events.token_ids, strict=True):
            assert name not in self.ends
            self.times.setdefault(name, []).append(events.time_s)
            self.ids.setdefault(name, []).extend(ids)
        for finish in events.finished:
            assert finish.request_id not in self.ends
            self.ends[finish.request_id] = finish
        if self._inner is not None:
            self._inner.emit(events)

    def status(self, name: str = "r0") -> str:
        return self.ends[name].status


@dataclass
class Played:
    engine: RemoteEngine
    sink: Collector
    duration_s: float
    requests: list[Request] = field(default_factory=list)


def some_requests(count: int, gap_s: float = 0.0, max_tokens: int = 3) -> list[Request]:
    return [
        Request(f"r{i}", (10 + i % 100, 11, 12), max_tokens, scheduled_s=i * gap_s)
        for i in range(count)
    ]


@pytest.fixture
def serve() -> Iterator[Callable[[Script], ScriptedServer]]:
    servers: list[ScriptedServer] = []

    def start(script: Script = three_tokens) -> ScriptedServer:
        servers.append(ScriptedServer(script))
        return servers[-1]

    yield start
    for server in servers:
        server.close()


@pytest.fixture
def engine_for() -> Iterator[Callable[..., RemoteEngine]]:
    """An engine for a server's URL, with settings as their text is read."""
    engines: list[RemoteEngine] = []

    def make(url: str, context: BuildContext | None = None, **settings: object) -> RemoteEngine:
        values = {s.name: s.default for s in OPENAI.settings} | {"base_url": url}
        values |= {"certify": False} | settings
        engines.append(build(values, context or BuildContext()))
        return engines[-1]

    yield make
    for engine in engines:
        engine.close()


@pytest.fixture
def play(engine_for) -> Callable[..., Played]:
    """Plays requests against a server as a cell does: prepared, reset, run."""

    def run(
        server: ScriptedServer | str,
        requests: list[Request] | int = 1,
        *,
        max_concurrency: int | None = None,
        engine: RemoteEngine | None = None,
        **settings: object,
    ) -> Played:
        url = server if isinstance(server, str) else server.url
        engine = engine or engine_for(url, **settings)
        wanted = some_requests(requests) if isinstance(requests, int) else requests
        engine.prepare(wanted, max_concurrency)
        engine.reset()
        clock = WallClock()
        source = ScheduledSource(wanted, clock)
        sink = Collector()
        if max_concurrency is not None:
            source = ClosedLoopSource(wanted, clock, max_concurrency)
            sink = Collector(source)
        engine.run(source, sink, clock)
        return Played(engine, sink, clock.now(), wanted)

    return run
