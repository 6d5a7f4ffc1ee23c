"""A server without a model that is always on time: what is late against it is the client.

It paces its tokens (a delay, then one chunk every gap), notes when each request arrived against
the schedule that the client sent along, and counts sockets. It exists to measure clients; it
checks nothing of what it is asked, and serves one process on one loop.

    python -m engines.remote.noop_server --port 8001 --first-token-ms 20 --gap-ms 10
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import heapq
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Final

from aiohttp import web

from engines.remote.event_loop import run_fast
from engines.remote.options import SCHEDULE_HEADER

LISTENING: Final = "listening on port "
_END_OF_STREAM: Final = b"data: [DONE]\n\n"
_DEFAULT_TOKENS: Final = 16
_SHORTEST_S: Final = 0.001  # a loop's timers are no finer, and would spin on less
_GOLDEN: Final = (5**0.5 - 1) / 2


@dataclass(frozen=True, slots=True)
class Pace:
    """Seconds from a request's arrival to its first token, and from token to token."""

    first_token_s: float = 0.02
    gap_s: float = 0.01


@dataclass(slots=True)
class Census:
    """What the server has seen since it was last asked to forget. Times by `perf_counter`."""

    sockets: int = 0
    open_streams: int = 0
    most_open_streams: int = 0
    arrivals_s: list[float] = field(default_factory=list)
    lags_s: list[float] = field(default_factory=list)
    late_s: float = 0.0  # how far its own pacing fell behind, at worst

    def forget(self) -> None:
        """Sockets and streams that are open stay counted."""
        self.most_open_streams = self.open_streams
        self.arrivals_s.clear()
        self.lags_s.clear()
        self.late_s = 0.0

    def to_json(self, rate: float | None) -> dict[str, Any]:
        """With `rate`, also how late each arrival was on the even grid that fits them best."""
        return {
            "grid_lags_s": grid_lags_s(self.arrivals_s, rate) if rate else None,
            "sockets": self.sockets,
            "open_streams": self.open_streams,
            "most_open_streams": self.most_open_streams,
            "arrivals_s": self.arrivals_s,
            "lags_s": self.lags_s,
            "late_s": self.late_s,
        }


@dataclass(slots=True)
class _Stream:
    """One answer under way: what is written at each beat, and who waits for the last one."""

    transport: asyncio.Transport
    chunk: bytes
    left: int
    done: asyncio.Future[None]

    def write(self) -> None:
        """One chunk; to a client that has left, nothing more. A closed transport raises."""
        if self.transport.is_closing():
            self.left = 0
            return
        self.transport.write(self.chunk)
        self.left -= 1


class Pacer:
    """One timer for all streams: at each beat it writes to those that are due."""

    def __init__(self, gap_s: float, census: Census) -> None:
        self._gap_s = gap_s
        self._census = census
        self._due: list[tuple[float, int, _Stream]] = []
        self._order = count()
        self._timer: asyncio.TimerHandle | None = None

    async def play(
        self, transport: asyncio.Transport, chunk: bytes, chunks: int, first_s: float
    ) -> None:
        """Writes `chunk` at `first_s` and then every gap; returns after the last one."""
        if chunks < 1:
            return
        done = asyncio.get_running_loop().create_future()
        self._push(first_s, _Stream(transport, chunk, chunks, done))
        await done

    def _push(self, due_s: float, stream: _Stream) -> None:
        heapq.heappush(self._due, (due_s, next(self._order), stream))
        if self._due[0][2] is stream:
            self._arm()

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        delay_s = max(self._due[0][0] - time.perf_counter(), _SHORTEST_S)
        self._timer = asyncio.get_running_loop().call_later(delay_s, self._beat)

    def _beat(self) -> None:
        self._timer = None
        now_s = time.perf_counter()
        while self._due and self._due[0][0] <= now_s:
            due_s, order, stream = self._due[0]
            self._census.late_s = max(self._census.late_s, now_s - due_s)
            stream.write()
            if stream.left:
                heapq.heapreplace(self._due, (due_s + self._gap_s, order, stream))
            else:
                heapq.heappop(self._due)
                if not stream.done.done():
                    stream.done.set_result(None)
        if self._due:
            self._arm()


class NoopServer:
    """The handlers of one server."""

    def __init__(self, pace: Pace) -> None:
        self._pace = pace
        self._census = Census()
        self._pacer = Pacer(pace.gap_s, self._census)
        self._seen: set[int] = set()
        self._streams = 0

    def application(self) -> web.Application:
        application = web.Application(client_max_size=64 * 2**20)
        application.add_routes(
            [
                web.post("/v1/completions", self._complete),
                web.post("/v1/chat/completions", self._complete),
                web.get("/v1/models", self._models),
                web.get("/health", self._healthy),
                web.get("/census", self._tell),
                web.post("/forget", self._forget),
            ]
        )
        return application

    async def _complete(self, request: web.Request) -> web.StreamResponse:
        arrived_s = time.perf_counter()
        self._note(request, arrived_s)
        body = json.loads(await request.read())
        tokens = body.get("max_tokens") or body.get("max_completion_tokens") or _DEFAULT_TOKENS
        chat = "messages" in body
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        response.enable_chunked_encoding()
        await response.prepare(request)
        try:
            await self._stream(request, response, arrived_s, tokens, chat)
            await response.write(_usage(len(body.get("prompt") or ()), tokens) + _END_OF_STREAM)
            await response.write_eof()
        finally:
            self._census.open_streams -= 1
        return response

    async def _stream(
        self,
        request: web.Request,
        response: web.StreamResponse,
        arrived_s: float,
        tokens: int,
        chat: bool,
    ) -> None:
        """The first chunk goes with the headers; the others past the response, framed already."""
        transport = request.transport
        if transport is None:
            return
        first_s = arrived_s + self._pace.first_token_s + self._phase_s()
        await asyncio.sleep(max(first_s - time.perf_counter(), 0.0))
        await response.write(_token(chat, last=tokens == 1))
        chunk = _framed(_token(chat, last=False))
        await self._pacer.play(transport, chunk, tokens - 2, first_s + self._pace.gap_s)
        if tokens > 1:
            last_s = first_s + (tokens - 1) * self._pace.gap_s
            await self._pacer.play(transport, _framed(_token(chat, last=True)), 1, last_s)

    def _phase_s(self) -> float:
        """Where in the gap a stream's tokens fall: spread evenly, whatever the rate.

        Without it an even rate that divides 1 / gap would put all streams on one beat.
        """
        self._streams += 1
        return self._streams * _GOLDEN % 1.0 * self._pace.gap_s

    def _note(self, request: web.Request, arrived_s: float) -> None:
        census = self._census
        census.arrivals_s.append(arrived_s)
        due = request.headers.get(SCHEDULE_HEADER)
        if due is not None:
            census.lags_s.append(arrived_s - float(due))
        census.open_streams += 1
        census.most_open_streams = max(census.most_open_streams, census.open_streams)
        if id(request.protocol) not in self._seen:
            self._seen.add(id(request.protocol))
            census.sockets += 1

    async def _models(self, _: web.Request) -> web.Response:
        model = {"id": "noop", "object": "model", "owned_by": "cbbench"}
        return web.json_response({"object": "list", "data": [model]})

    async def _healthy(self, _: web.Request) -> web.Response:
        return web.Response()

    async def _tell(self, request: web.Request) -> web.Response:
        rate = float(request.query.get("rate", 0))
        return web.json_response(self._census.to_json(rate or None))

    async def _forget(self, _: web.Request) -> web.Response:
        self._census.forget()
        return web.json_response({})


def grid_lags_s(arrivals_s: Sequence[float], rate: float) -> list[float]:
    """For a client that cannot send its schedule along: lags behind one request each 1 / rate.

    The earliest arrival, by its place on the grid, counts as on time.
    """
    offsets_s = [arrival_s - i / rate for i, arrival_s in enumerate(sorted(arrivals_s))]
    return [offset_s - min(offsets_s) for offset_s in offsets_s]


async def serve(host: str, port: int, pace: Pace, *, until_stdin_ends: bool = False) -> None:
    """Serves until it is cancelled; says on the standard output which port it has."""
    runner = web.AppRunner(NoopServer(pace).application(), access_log=None, keepalive_timeout=600)
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port, backlog=4096).start()
        gc.collect()
        gc.freeze()  # a collection of what was imported would be late tokens
        print(f"{LISTENING}{runner.addresses[0][1]}", flush=True)
        if until_stdin_ends:
            await asyncio.to_thread(sys.stdin.buffer.read)
        else:
            await asyncio.Event().wait()
    finally:
        await runner.cleanup()


def _token(chat: bool, *, last: bool) -> bytes:
    """An event with one token, of the size that other servers' have."""
    finish = "length" if last else None
    choice: dict[str, Any] = {"index": 0, "logprobs": None, "finish_reason": finish}
    choice |= {"delta": {"content": " word"}} if chat else {"text": " word"}
    kind = "chat.completion.chunk" if chat else "text_completion"
    event = {"id": "noop-0", "object": kind, "created": 0, "model": "noop", "choices": [choice]}
    return b"data: " + json.dumps(event, separators=(",", ":")).encode() + b"\n\n"


def _usage(prompt_tokens: int, completion_tokens: int) -> bytes:
    usage = {"prompt_tokens": prompt_tokens, "completion_tokens": completion_tokens}
    event = {"id": "noop-0", "object": "text_completion", "choices": [], "usage": usage}
    return b"data: " + json.dumps(event, separators=(",", ":")).encode() + b"\n\n"


def _framed(data: bytes) -> bytes:
    """One chunk of HTTP's chunked encoding."""
    return b"%x\r\n%s\r\n" % (len(data), data)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="A server that paces tokens and has no model.")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0, help="0: any that is free")
    parser.add_argument("--first-token-ms", type=float, default=20.0)
    parser.add_argument("--gap-ms", type=float, default=10.0)
    parser.add_argument("--until-stdin-ends", action="store_true")
    options = parser.parse_args(arguments)
    pace = Pace(options.first_token_ms / 1e3, options.gap_ms / 1e3)
    try:
        run_fast(serve(options.host, options.port, pace, until_stdin_ends=options.until_stdin_ends))
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
