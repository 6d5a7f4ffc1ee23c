"""Stands before the app: who may come in, and how large and how slow a body may be.

Plain ASGI, so that a refused body is never read and a stream is never buffered.
"""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Callable
from typing import Final

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from harness.server.errors import ApiError, error_response

_GUARDED: Final = "/v1/"
_SCHEME: Final = "bearer "


class Guards:
    """`api_key` of `None` lets everybody in. Counts each answered request by its route."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        api_key: str | None,
        most_body_bytes: int,
        body_within_s: float,
        count: Callable[[str, int], None],
    ) -> None:
        self._app = app
        self._api_key = None if api_key is None else api_key.encode()
        self._most_body_bytes = most_body_bytes
        self._body_within_s = body_within_s
        self._count = count

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return

        async def counted(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._count(scope["path"], message["status"])
            await send(message)

        try:
            self._check_key(scope)
            self._check_length(scope)
        except ApiError as error:
            await error_response(error)(scope, receive, counted)
            return
        await self._app(scope, self._bounded(receive), counted)

    def _check_key(self, scope: Scope) -> None:
        if self._api_key is None or not scope["path"].startswith(_GUARDED):
            return
        given = Headers(scope=scope).get("authorization", "")
        key = given[len(_SCHEME) :] if given.lower().startswith(_SCHEME) else ""
        if not hmac.compare_digest(key.encode("latin-1"), self._api_key):
            raise ApiError(
                401,
                "missing or wrong API key; expected a header 'Authorization: Bearer KEY'",
                code="invalid_api_key",
                headers={"WWW-Authenticate": "Bearer"},
            )

    def _check_length(self, scope: Scope) -> None:
        told = Headers(scope=scope).get("content-length", "")
        if told.isdecimal() and int(told) > self._most_body_bytes:
            raise self._too_large()

    def _too_large(self) -> ApiError:
        return ApiError(
            413,
            f"the body is larger than {self._most_body_bytes} bytes",
            code="body_too_large",
            headers={"Connection": "close"},
        )

    def _bounded(self, receive: Receive) -> Receive:
        """The same body, of bounded size and time; what comes after it is let through."""
        size = 0
        is_whole = False
        deadline_s = asyncio.get_running_loop().time() + self._body_within_s

        async def bounded() -> Message:
            nonlocal size, is_whole
            if is_whole:
                return await receive()
            try:
                async with asyncio.timeout_at(deadline_s):
                    message = await receive()
            except TimeoutError:
                raise ApiError(
                    408,
                    f"the body did not come within {self._body_within_s:g} s",
                    headers={"Connection": "close"},
                ) from None
            size += len(message.get("body", b""))
            if size > self._most_body_bytes:
                raise self._too_large()
            is_whole = not message.get("more_body", False)
            return message

        return bounded
