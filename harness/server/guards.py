"""Stands before the app: who may come in, and with what body.

Plain ASGI, so that a refused body is never read and a stream is never buffered.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable
from typing import Final

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from harness.server.bounded_body import BodyLimits, BoundedBody, check_length
from harness.server.errors import ApiError, error_response
from harness.server.room import Room

_GUARDED: Final = "/v1/"
_SCHEME: Final = "bearer "


class Guards:
    """`api_key` of `None` lets everybody in. Counts each answered request by its route."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        api_key: str | None,
        limits: BodyLimits,
        count: Callable[[str, int], None],
    ) -> None:
        self._app = app
        self._api_key = None if api_key is None else api_key.encode()
        self._limits = limits
        self._room = Room(limits.at_once * limits.most_bytes)
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
            check_length(scope, self._limits)
        except ApiError as error:
            await error_response(error)(scope, receive, counted)
            return
        body = BoundedBody(scope, receive, self._room, self._limits)
        try:
            await self._app(scope, body.receive, counted)
        finally:
            body.leave()

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
