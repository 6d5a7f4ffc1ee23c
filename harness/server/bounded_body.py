"""A request's body as it is let through: of bounded size and time, and only where there is room.

Plain ASGI. The room is for bodies on their way; one that is whole is the app's to bound.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Final

from starlette.datastructures import Headers
from starlette.types import Message, Receive, Scope

from harness.server.errors import ApiError
from harness.server.room import Room

_CLOSE: Final = {"Connection": "close"}


@dataclass(frozen=True, slots=True)
class BodyLimits:
    """`at_once` bodies of the largest size may be on their way, or more that are smaller."""

    most_bytes: int = 4 * 2**20
    within_s: float = 30.0
    at_once: int = 64


class BoundedBody:
    """One body. Its room is kept from the first `receive` until it is whole, or until `leave`."""

    def __init__(self, scope: Scope, receive: Receive, room: Room, limits: BodyLimits) -> None:
        self._receive = receive
        self._room = room
        self._limits = limits
        self._expected = _expected(scope, limits)
        self._held = self._size = 0
        self._deadline_s: float | None = None
        self._is_whole = False

    async def receive(self) -> Message:
        """Raises `ApiError` 408 or 413. What comes after the body is let through."""
        if self._is_whole:
            return await self._receive()
        if self._deadline_s is None:
            await self._begin()
        message = await self._next()
        self._size += len(message.get("body", b""))
        if self._size > self._limits.most_bytes:
            raise too_large(self._limits)
        if not message.get("more_body", False):
            self._is_whole = True
            self.leave()
        return message

    def leave(self) -> None:
        held, self._held = self._held, 0
        self._room.give_back(held)

    async def _begin(self) -> None:
        """The time that the server makes it wait is not the body's."""
        if self._expected:
            await self._room.take(self._expected)
            self._held = self._expected
        self._deadline_s = asyncio.get_running_loop().time() + self._limits.within_s

    async def _next(self) -> Message:
        try:
            async with asyncio.timeout_at(self._deadline_s):
                return await self._receive()
        except TimeoutError:
            within_s = self._limits.within_s
            message = f"the body did not come within {within_s:g} s"
            raise ApiError(408, message, headers=_CLOSE) from None


def check_length(scope: Scope, limits: BodyLimits) -> None:
    """Raises `ApiError` 413 for a length that is too large, before anything is read."""
    told = Headers(scope=scope).get("content-length", "")
    if told.isdecimal() and int(told) > limits.most_bytes:
        raise too_large(limits)


def too_large(limits: BodyLimits) -> ApiError:
    message = f"the body is larger than {limits.most_bytes} bytes"
    return ApiError(413, message, code="body_too_large", headers=_CLOSE)


def _expected(scope: Scope, limits: BodyLimits) -> int:
    """How many bytes may come; of one that does not tell its length, as many as are allowed."""
    headers = Headers(scope=scope)
    if "transfer-encoding" in headers:
        return limits.most_bytes
    told = headers.get("content-length", "")
    return min(int(told), limits.most_bytes) if told.isdecimal() else 0
