"""Answers one completion request over one connection, streamed or whole, or lets it go.

The status is sent when the engine has given the first token or an error, so that what cannot be
served is an HTTP error and not a broken stream. A client that leaves, and one that reads too
slowly, takes its prompts out of the engine.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from engines.api import Finish
from harness.server.answer import Answer
from harness.server.connections import cut
from harness.server.desk import Desk
from harness.server.errors import TOO_LONG, ApiError, error_body, error_response
from harness.server.jobs import Job
from harness.server.mailbox import Delivery, Mailbox, Overflow
from harness.server.shapes import DONE, Json, Piece, Shape, Usage, as_event
from harness.server.text import ModelText
from harness.server.ticket import Ticket

_STREAM_HEADERS: Final = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
]


@dataclass(frozen=True, slots=True)
class Patience:
    """How much is kept for a slow reader, in tokens, and how long one write may take."""

    most_tokens: int = 1024
    write_within_s: float = 30.0


class Answering(Response):
    """The response to one job. Sends it to the engine when it is called, not before."""

    def __init__(
        self, job: Job, shape: Shape, desk: Desk, text: ModelText, patience: Patience
    ) -> None:
        self._job = job
        self._shape = shape
        self._desk = desk
        self._patience = patience
        self._mailbox = Mailbox(patience.most_tokens)
        self._tickets: list[Ticket] = []
        self._answers = [
            Answer(
                text.detokenizer(skip_special_tokens=job.skip_special_tokens),
                job.stops,
                job.min_tokens,
            )
            for _ in job.requests
        ]
        self.background = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Whatever ends it, nothing of it stays in the engine."""
        self._tickets = self._desk.submit(self._job.requests, self._mailbox, lambda: cut(scope))
        answering = asyncio.create_task(
            self._answer(_Writer(scope, send, self._mailbox, self._patience.write_within_s))
        )
        leaving = asyncio.create_task(_until_client_leaves(receive))
        try:
            await asyncio.wait({answering, leaving}, return_when=asyncio.FIRST_COMPLETED)
            if answering.done():
                answering.result()
        finally:
            for task in (answering, leaving):
                task.cancel()
            await asyncio.wait({answering, leaving})
            for ticket in self._tickets:
                self._desk.end(ticket, "abort")

    async def _answer(self, writer: _Writer) -> None:
        try:
            if self._job.streams:
                await self._stream(writer)
            else:
                await self._gather(writer)
        except (Overflow, TimeoutError):
            writer.cut()
        except ApiError as error:
            await writer.refuse(error)

    async def _gather(self, writer: _Writer) -> None:
        texts = ["" for _ in self._answers]
        ids: list[list[int]] = [[] for _ in self._answers]
        while not self._is_over():
            for piece in self._pieces(await self._mailbox.take()):
                texts[piece.place] += piece.text
                ids[piece.place] += piece.token_ids or ()
        shown = self._job.return_token_ids
        pieces = [
            Piece(
                place,
                texts[place],
                answer.finish_reason,
                ids[place] if shown else None,
                self._prompt(place) if shown else None,
            )
            for place, answer in enumerate(self._answers)
        ]
        body = self._shape.whole(pieces, self._usage())
        await writer.whole(json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode())

    async def _stream(self, writer: _Writer) -> None:
        begun: set[int] = set()
        while not self._is_over():
            events = bytearray()
            for piece in self._pieces(await self._mailbox.take()):
                if piece.place not in begun:
                    begun.add(piece.place)
                    events += self._opening(piece.place)
                events += self._event(piece)
            if events:
                await writer.stream(bytes(events))
        last = b""
        if self._job.include_usage:
            last = as_event(self._shape.usage_chunk(self._usage()))
        await writer.end_stream(last + DONE)

    def _pieces(self, deliveries: dict[int, Delivery]) -> Iterator[Piece]:
        """What is worth telling of what has come. Raises `ApiError` for a prompt that failed."""
        for place, delivery in deliveries.items():
            answer = self._answers[place]
            if answer.is_over:
                continue
            before = answer.num_tokens
            text = answer.take(delivery.token_ids, delivery.finish)
            _raise_if_failed(answer.finish)
            if answer.stopped_early:
                self._desk.end(self._tickets[place], "stop")
            counted = delivery.token_ids[: answer.num_tokens - before]
            if text or answer.is_over or self._tells_tokens():
                yield Piece(place, text, answer.finish_reason, counted)

    def _tells_tokens(self) -> bool:
        """Whether a client wants to know of tokens whose text is still held."""
        return self._job.return_token_ids or self._job.continuous_usage

    def _opening(self, place: int) -> bytes:
        chunk = self._shape.role_chunk(place)
        return b"" if chunk is None else self._finished_event(chunk)

    def _event(self, piece: Piece) -> bytes:
        shown = piece.token_ids if self._job.return_token_ids else None
        bare = Piece(piece.place, piece.text, piece.finish_reason, shown)
        return self._finished_event(self._shape.chunk(bare))

    def _finished_event(self, chunk: Json) -> bytes:
        if self._job.continuous_usage:
            chunk["usage"] = self._usage().as_json()
        elif self._job.include_usage:
            chunk["usage"] = None
        return as_event(chunk)

    def _is_over(self) -> bool:
        return all(answer.is_over for answer in self._answers)

    def _prompt(self, place: int) -> tuple[int, ...]:
        return self._job.requests[place].prompt_token_ids

    def _usage(self) -> Usage:
        hits = [a.finish.stats.prefix_hit_tokens for a in self._answers if a.finish is not None]
        known = [hit for hit in hits if hit is not None]
        return Usage(
            self._job.prompt_tokens,
            sum(answer.num_tokens for answer in self._answers),
            sum(known) if len(known) == len(self._answers) else None,
        )


class _Writer:
    """Writes a response's parts within a bounded time each."""

    def __init__(self, scope: Scope, send: Send, mailbox: Mailbox, within_s: float) -> None:
        self._scope = scope
        self._send = send
        self._mailbox = mailbox
        self._within_s = within_s
        self._has_begun = False

    def cut(self) -> None:
        cut(self._scope)

    async def whole(self, body: bytes) -> None:
        headers = [(b"content-type", b"application/json")]
        headers.append((b"content-length", str(len(body)).encode()))
        await self._write({"type": "http.response.start", "status": 200, "headers": headers})
        await self._write({"type": "http.response.body", "body": body})

    async def stream(self, events: bytes, *, more: bool = True) -> None:
        if not self._has_begun:
            self._has_begun = True
            await self._write(
                {"type": "http.response.start", "status": 200, "headers": _STREAM_HEADERS}
            )
        await self._write({"type": "http.response.body", "body": events, "more_body": more})

    async def end_stream(self, events: bytes) -> None:
        await self.stream(events, more=False)

    async def refuse(self, error: ApiError) -> None:
        """As an HTTP error, or within a stream that has begun; then without `[DONE]`."""
        if self._has_begun:
            await self.end_stream(as_event(error_body(error.status_code, str(error.detail))))
        else:
            await error_response(error)(self._scope, _nothing, self._send)

    async def _write(self, message: Message) -> None:
        with self._mailbox.writing():
            async with asyncio.timeout(self._within_s):
                await self._send(message)


async def _nothing() -> Message:
    raise AssertionError("the body has been read")


async def _until_client_leaves(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _raise_if_failed(finish: Finish | None) -> None:
    if finish is None or finish.status == "ok":
        return
    if finish.status == "rejected":
        raise ApiError(400, finish.reason, param="prompt", code=TOO_LONG)
    raise ApiError(500, finish.reason or "the engine gave up on this request")
