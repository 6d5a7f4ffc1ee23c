"""A way to cut a client's connection off, which ASGI does not have.

Closing waits until the client has read what is buffered; one that reads no more would keep its
connection, and the server's end, waiting for ever.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from starlette.types import Scope
from uvicorn.protocols.http.h11_impl import H11Protocol

_TRANSPORT = "cbbench.transport"


class CuttableProtocol(H11Protocol):
    """uvicorn's own, which also puts the connection's transport into each request's state."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self.app_state = {**self.app_state, _TRANSPORT: transport}
        super().connection_made(transport)


def cut(scope: Scope) -> None:
    """Drops the connection of a request at once; no effect under another server."""
    state: Mapping[str, Any] = scope.get("state", {})
    transport = state.get(_TRANSPORT)
    if transport is not None:
        transport.abort()
