"""The connections to one server: pooled, opened before they are needed, and nobody's business.

httpx is the face; what carries it is aiohttp, which streams several times as fast as httpx's own
transport. No proxy and no credential file is looked at for an address on this machine, no
redirect is followed, no cookie is kept.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from typing import Final
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
import httpx
from httpx_aiohttp import AiohttpTransport
from httpx_aiohttp.transport import AiohttpResponseStream

from engines.remote.options import is_loopback

TRANSPORT_ERRORS: Final = (
    httpx.HTTPError,
    httpx.StreamError,
    aiohttp.ClientError,
    aiohttp.http_exceptions.HttpProcessingError,
    OSError,
    EOFError,
    TimeoutError,
    ssl.SSLError,
    UnicodeError,  # of a name that cannot be one of a host
)
_UNDERNEATH: Final = "cbbench.aiohttp"


class _Opened(Exception):
    """A connection stands; no request is to be sent on it."""


class _Response(aiohttp.ClientResponse):
    """Its status may be told in any bytes; the libraries above know only characters."""

    async def start(self, connection: aiohttp.connector.Connection) -> aiohttp.ClientResponse:
        await super().start(connection)
        self.reason = (self.reason or "").encode(errors="replace").decode()
        return self


class _Transport(AiohttpTransport):
    """Shows the answer underneath, to be asked whether its connection still stands."""

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        response = await super().handle_async_request(request)
        if isinstance(response.stream, AiohttpResponseStream):
            response.extensions[_UNDERNEATH] = response.stream._aiohttp_response
        return response


class Connections:
    """An httpx client over a pool of `limit` connections. Belongs to the running loop.

    `limit` is a number on purpose: without one the pool holds 100, and what is beyond them waits
    inside the client.
    """

    def __init__(
        self,
        root: str,
        *,
        limit: int,
        keepalive_s: float,
        connect_timeout_s: float,
        headers: Mapping[str, str],
        traces: list[aiohttp.TraceConfig] | None = None,
    ) -> None:
        self._root = root
        self._limit = limit
        local = is_loopback(root)
        verified = httpx.create_ssl_context(trust_env=not local) if _is_https(root) else False
        self._pool = aiohttp.TCPConnector(
            limit=limit, keepalive_timeout=keepalive_s, ssl=verified, ttl_dns_cache=None
        )
        self._session = aiohttp.ClientSession(
            connector=self._pool,
            cookie_jar=aiohttp.DummyCookieJar(),
            trust_env=False,
            trace_configs=traces,
            response_class=_Response,
        )
        self._timeout = aiohttp.ClientTimeout(sock_connect=connect_timeout_s)
        proxy = None if local else proxy_for(root)
        self._proxy = proxy
        self.client = httpx.AsyncClient(
            transport=_Transport(
                client=self._session,
                verify=False,  # the session's connector verifies
                proxy=None if proxy is None else httpx.Proxy(proxy),
            ),
            headers={**headers, "accept-encoding": "identity", "user-agent": "cbbench"},
            timeout=httpx.Timeout(None, connect=connect_timeout_s),
            trust_env=False,
            follow_redirects=False,
        )

    async def warm(self, count: int) -> None:
        """Opens connections until `count` of them stand idle. A server that is gone is no error."""
        opened: list[aiohttp.connector.Connection] = []
        wanted = min(count, self._limit)
        await asyncio.gather(*(self._open(opened) for _ in range(wanted)))
        for connection in opened:
            connection.release()

    async def _open(self, opened: list[aiohttp.connector.Connection]) -> None:
        """Connects through the pool itself, and stops short of sending anything."""

        async def only_connect(
            request: aiohttp.ClientRequest, _: aiohttp.ClientHandlerType
        ) -> aiohttp.ClientResponse:
            opened.append(await self._pool.connect(request, [], self._timeout))
            raise _Opened

        with suppress(_Opened, *TRANSPORT_ERRORS):
            await self._session.get(
                self._root,
                middlewares=(only_connect,),
                proxy=self._proxy,
                timeout=self._timeout,
            )

    async def close(self) -> None:
        await self.client.aclose()
        await self._session.close()


def chunks_of(response: httpx.Response) -> AsyncIterator[bytes]:
    """The body as it comes. Past httpx's own wrapping, which costs a seventh of a stream's time."""
    answer: aiohttp.ClientResponse | None = response.extensions.get(_UNDERNEATH)
    return response.aiter_raw() if answer is None else _as_it_comes(answer.content)


async def _as_it_comes(content: aiohttp.StreamReader) -> AsyncIterator[bytes]:
    while chunk := await content.readany():
        yield chunk


def is_stranded(response: httpx.Response) -> bool:
    """Whether the connection is gone and the body does not know it.

    That is what becomes of a body whose framing breaks: its reader would wait for ever.
    """
    answer: aiohttp.ClientResponse | None = response.extensions.get(_UNDERNEATH)
    if answer is None or answer.connection is None:
        return False
    protocol = answer.connection.protocol
    lost = protocol is None or not protocol.is_connected()
    return lost and not answer.content.is_eof() and answer.content.exception() is None


def proxy_for(root: str) -> str | None:
    """The proxy that the environment names for an address, if any."""
    parts = urlsplit(root)
    if proxy_bypass(parts.hostname or ""):
        return None
    proxies = getproxies()
    return proxies.get(parts.scheme) or proxies.get("all")


def _is_https(root: str) -> bool:
    return urlsplit(root).scheme == "https"
