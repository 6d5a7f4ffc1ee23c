"""One request on its way: sent, streamed, ended. Every trouble becomes the request's outcome.

Knows the wire and nothing of schedules: who starts an exchange, when, and how many at once is
decided elsewhere.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Final

import aiohttp
import httpx

from engines.api import Clock, Finish, FinishReason, Request, RequestStats, Status
from engines.remote.completion import Completion, shortened
from engines.remote.connections import TRANSPORT_ERRORS, chunks_of
from engines.remote.emission import Emitter
from engines.remote.refusals import refusal
from engines.remote.sse import EventDecoder, StreamError

MAX_ANSWER_BYTES: Final = 256 * 2**20
_MAX_ERROR_BYTES: Final = 64 * 2**10
_DRAIN_S: Final = 0.05  # for the end of a body whose last event has come
_ON_THE_WIRE: ContextVar[Exchange] = ContextVar("exchange")
Outcome = tuple[Status, FinishReason | None, str]


@dataclass(frozen=True, slots=True)
class Wire:
    """What all exchanges of a run share. `redact` takes secrets out of a server's words."""

    client: httpx.AsyncClient
    clock: Clock
    emitter: Emitter
    retries: int
    redact: Callable[[str], str]
    count_text: Callable[[str], int] | None = None


class Exchange:
    """One request and its answer. `last_s` is when a token last came, or when it was begun."""

    __slots__ = (
        "_cut",
        "_wire",
        "completion",
        "last_s",
        "message",
        "request",
        "response",
        "retried",
        "sent_s",
    )

    def __init__(self, wire: Wire, request: Request, message: httpx.Request) -> None:
        self._wire = wire
        self.request = request
        self.message = message
        self.response: httpx.Response | None = None
        self.completion = Completion()
        self.sent_s: float | None = None
        self.last_s = wire.clock.now()
        self.retried = 0
        self._cut: tuple[Status, str] | None = None

    def cut(self, status: Status, reason: str) -> None:
        """Says what the exchange comes to when its task is cancelled; the first word counts."""
        self._cut = self._cut or (status, reason)

    async def run(self) -> None:
        """Ends with one `Finish`, whatever happens."""
        _ON_THE_WIRE.set(self)
        try:
            outcome = await self._attempt()
        except asyncio.CancelledError:
            outcome = self._cut_short()
        self._wire.emitter.finish(self._finish(outcome))

    def never_ran(self) -> None:
        """Its end when the task was cancelled before its first step."""
        self._wire.emitter.finish(self._finish(self._cut_short()))

    async def _attempt(self) -> Outcome:
        while True:
            try:
                response = await self._wire.client.send(self.message, stream=True)
                break
            except TRANSPORT_ERRORS as error:
                if self.retried >= self._wire.retries:
                    return "failed", None, trouble("no answer", error)
                self.retried += 1
        self.response = response
        try:
            return await self._read(response)
        except (StreamError, *TRANSPORT_ERRORS) as error:
            if self.completion.ended:
                return self.completion.outcome()
            return "failed", None, trouble("the stream broke", error)
        finally:
            with suppress(*TRANSPORT_ERRORS):
                await response.aclose()

    async def _read(self, response: httpx.Response) -> Outcome:
        if response.status_code != 200:
            return await self._refused(response)
        if response.headers.get("content-type", "").startswith("application/json"):
            self._take(await _whole(chunks_of(response), MAX_ANSWER_BYTES))
            self.completion.done = True
            return self.completion.outcome()
        chunks = chunks_of(response)
        await self._follow(chunks)
        outcome = self.completion.outcome()
        with suppress(TimeoutError, *TRANSPORT_ERRORS):
            async with asyncio.timeout(_DRAIN_S):
                async for _ in chunks:
                    pass
        return outcome

    async def _follow(self, chunks: AsyncIterator[bytes]) -> None:
        """Reads up to the end that the server announces, or to the stream's own."""
        completion, decoder, size = self.completion, EventDecoder(), 0
        async for chunk in chunks:
            size += len(chunk)
            for payload in decoder.feed(chunk):
                self._take(payload)
            if completion.done or completion.error is not None:
                return
            if size > MAX_ANSWER_BYTES:
                raise StreamError(f"the answer is longer than {MAX_ANSWER_BYTES} bytes")
        for payload in decoder.close():
            self._take(payload)

    def _take(self, payload: bytes) -> None:
        ids: Sequence[int] = self.completion.read(payload)
        if ids:
            self.last_s = self._wire.emitter.tokens(self.request.request_id, ids)

    async def _refused(self, response: httpx.Response) -> Outcome:
        if 300 <= response.status_code < 400:
            where = response.headers.get("location", "somewhere else")
            return "failed", None, f"HTTP {response.status_code}: redirected to {where}"
        body = await _whole(chunks_of(response), _MAX_ERROR_BYTES)
        status, reason = refusal(response.status_code, body)
        return status, None, reason

    def _cut_short(self) -> Outcome:
        if self.completion.ended:
            return self.completion.outcome()
        status, reason = self._cut or ("cancelled", "the run ended")
        return status, None, reason

    def _finish(self, outcome: Outcome) -> Finish:
        status, finish_reason, reason = outcome
        answer = self.completion
        counts, counted_by = answer.final_counts(self._wire.count_text)
        stats = RequestStats(
            sent_s=self.sent_s,
            prefix_hit_tokens=answer.usage.cached_tokens,
            served_prompt_tokens=answer.usage.prompt_tokens,
            counted_by=counted_by if counts else None,
        )
        return Finish(
            self.request.request_id,
            status,
            finish_reason,
            self._wire.redact(shortened(reason)),
            stats,
            None if counts == answer.counts else counts,
        )


def stamping() -> aiohttp.TraceConfig:
    """Notes on the present exchange when its request is about to be written."""
    trace = aiohttp.TraceConfig()

    async def on_sent(*_: object) -> None:
        exchange = _ON_THE_WIRE.get(None)
        if exchange is not None:
            exchange.sent_s = exchange._wire.clock.now()

    trace.on_request_headers_sent.append(on_sent)
    return trace


def trouble(what: str, error: BaseException) -> str:
    """A broken connection in words: the first cause, without the libraries' wrapping."""
    cause = error.__cause__ or error
    told = str(cause).replace(" ssl:default", "").strip()
    return shortened(f"{what}: {told or type(cause).__name__}")


async def _whole(chunks: AsyncIterator[bytes], limit: int) -> bytes:
    """The body, up to about `limit` bytes; what goes on after that is garbage anyway."""
    parts, size = [], 0
    async for chunk in chunks:
        parts.append(chunk)
        size += len(chunk)
        if size > limit:
            break
    return b"".join(parts)
