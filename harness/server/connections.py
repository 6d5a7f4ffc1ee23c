"""A way to cut a client's connection off, which ASGI does not have.

Closing waits until the client has read what is buffered; one that reads no more would keep its
connection, and the server's end, waiting for ever.
"""

from __future__ import annotations

import asyncio
import socket
import struct
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
    """Resets the connection of a request at once; no effect under another server."""
    state: Mapping[str, Any] = scope.get("state", {})
    transport = state.get(_TRANSPORT)
    if transport is None or transport.is_closing():
        return
    connection = transport.get_extra_info("socket")
    if connection is not None:  # or the system would still offer what it has buffered
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    transport.abort()
