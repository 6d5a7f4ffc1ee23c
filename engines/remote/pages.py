"""A server's small pages, read whole: bounded in size and in time, however the server answers.

What is said on them is the business of those who ask.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import Final

import httpx

MAX_PAGE_BYTES: Final = 4 * 2**20


@dataclass(frozen=True, slots=True)
class Page:
    """A page that came to its end."""

    status: int
    headers: httpx.Headers
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode(errors="replace")


class _Body:
    """What has come of a body so far."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._size = 0

    def add(self, part: bytes) -> None:
        """Raises `httpx.StreamError` for a page without end."""
        self._parts.append(part)
        self._size += len(part)
        if self._size > MAX_PAGE_BYTES:
            raise httpx.StreamError(f"the page is longer than {MAX_PAGE_BYTES} bytes")

    def of(self, response: httpx.Response) -> Page:
        return Page(response.status_code, response.headers, b"".join(self._parts))


async def fetch(client: httpx.AsyncClient, method: str, url: str, patience_s: float) -> Page:
    """Everything within `patience_s`, from the connecting on.

    Raises what the client raises, `TimeoutError`, and `httpx.StreamError` for a page without end.
    """
    async with asyncio.timeout(patience_s), client.stream(method, url) as response:
        body = _Body()
        async for part in response.aiter_bytes():
            body.add(part)
        return body.of(response)


def fetch_blocking(client: httpx.Client, url: str, patience_s: float) -> Page:
    """The same with GET, outside a loop; the patience begins with the body.

    What comes before it is bounded by the client's own timeout, each read for itself.
    """
    with client.stream("GET", url) as response:
        body, deadline_s = _Body(), time.monotonic() + patience_s
        for part in response.iter_bytes():
            body.add(part)
            if time.monotonic() > deadline_s:
                raise TimeoutError(f"the page takes longer than {patience_s:g} s")
        return body.of(response)
