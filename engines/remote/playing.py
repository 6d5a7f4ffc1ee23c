"""One run of a remote engine: requests leave when they are due, and nobody waits for ever.

Pulls from the source on the absolute schedule, holds the number in flight to the connections, cuts
off what has been silent too long and, at the end, what outlasts the grace.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import Final

import httpx

from engines.api import Blocked, End, Request, RequestId, RequestSource, Status
from engines.remote.alarm import Alarm
from engines.remote.connections import is_stranded
from engines.remote.exchange import Exchange, Wire

_LOOK_EVERY_S: Final = 0.05  # for clients that have left, and for sources fed by other threads
_SLOWEST_WATCH_S: Final = 0.5
Message = Callable[[Request], httpx.Request]


class Play:
    """Serves one source to its end, or until `stop`."""

    def __init__(
        self,
        source: RequestSource,
        message: Message,
        *,
        limit: int,
        idle_timeout_s: float,
        grace_s: float,
    ) -> None:
        self._source = source
        self._message = message
        self._limit = limit
        self._idle_timeout_s = idle_timeout_s
        self._grace_s = grace_s
        self._in_flight: dict[RequestId, tuple[Exchange, asyncio.Task[None]]] = {}
        self._alarm: Alarm
        self._pause: asyncio.Future[None] | None = None
        self._stopped = False
        self._failure: BaseException | None = None
        self.retried = 0

    def wake(self) -> None:
        """Something has changed: the source is asked again."""
        if self._pause is not None and not self._pause.done():
            self._pause.set_result(None)

    def stop(self) -> None:
        self._stopped = True
        self.wake()

    def fail(self, error: BaseException) -> None:
        """Ends the run with `error`; what is in flight is cut off."""
        self._failure = self._failure or error
        self.stop()

    async def run(self, wire: Wire) -> None:
        """Raises what `fail` was given."""
        watch = asyncio.create_task(self._watch(wire))
        self._alarm = Alarm(asyncio.get_running_loop(), self.wake)
        try:
            await self._hand_out(wire)
            await self._see_out(wire)
        finally:
            watch.cancel()
            self._alarm.close()
            await self._cut_all("cancelled", "the run was stopped")
            wire.emitter.flush()
        if self._failure is not None:
            raise self._failure

    async def _hand_out(self, wire: Wire) -> None:
        while not self._stopped:
            self._let_go()
            due, now_s = self._source.next_due(), wire.clock.now()
            if isinstance(due, End):
                return
            room = self._limit - len(self._in_flight)
            if room < 1 or isinstance(due, Blocked):
                await self._wait(_LOOK_EVERY_S)
            elif due == math.inf:
                until_s = now_s + _LOOK_EVERY_S
                await asyncio.get_running_loop().run_in_executor(None, self._source.wait, until_s)
            elif due > now_s:
                await self._wait(min(due - now_s, _LOOK_EVERY_S))
            else:
                for request in self._source.take(now_s, room):
                    self._start(wire, request)

    async def _see_out(self, wire: Wire) -> None:
        """What is in flight may end, within the grace."""
        deadline_s = wire.clock.now() + self._grace_s
        while self._in_flight and not self._stopped and wire.clock.now() < deadline_s:
            self._let_go()
            await self._wait(min(_LOOK_EVERY_S, max(deadline_s - wire.clock.now(), 0.0)))
        if self._in_flight and not self._stopped:
            await self._cut_all("cancelled", f"unfinished after {self._grace_s:g} s of grace")

    def _start(self, wire: Wire, request: Request) -> None:
        exchange = Exchange(wire, request, self._message(request))
        task = asyncio.create_task(exchange.run())
        self._in_flight[request.request_id] = exchange, task
        task.add_done_callback(lambda _: self._ended(request.request_id))

    def _ended(self, request_id: RequestId) -> None:
        exchange, task = self._in_flight.pop(request_id)
        self.retried += exchange.retried
        if task.cancelled():
            exchange.never_ran()
        elif (error := task.exception()) is not None:
            self.fail(error)
        self.wake()

    def _let_go(self) -> None:
        for request_id in self._source.cancelled():
            if request_id in self._in_flight:
                self._cut(request_id, "cancelled", "the client left")

    def _cut(self, request_id: RequestId, status: Status, reason: str) -> None:
        exchange, task = self._in_flight[request_id]
        exchange.cut(status, reason)
        task.cancel()

    async def _cut_all(self, status: Status, reason: str) -> None:
        tasks = [task for _, task in self._in_flight.values()]
        for request_id in list(self._in_flight):
            self._cut(request_id, status, reason)
        if tasks:
            await asyncio.wait(tasks)

    async def _watch(self, wire: Wire) -> None:
        """Cuts off what has brought no token for the idle limit, or was stranded two looks ago."""
        limit_s = self._idle_timeout_s
        stranded: set[RequestId] = set()
        while True:
            await asyncio.sleep(min(limit_s / 10, _SLOWEST_WATCH_S))
            silent_since_s = wire.clock.now() - limit_s
            before, stranded = stranded, set()
            for request_id, (exchange, _) in list(self._in_flight.items()):
                if exchange.last_s < silent_since_s:
                    self._cut(request_id, "timeout", f"no token for {limit_s:g} s")
                elif exchange.response is not None and is_stranded(exchange.response):
                    stranded.add(request_id)
                    if request_id in before:
                        self._cut(request_id, "failed", "the stream broke: its framing is garbage")

    async def _wait(self, delay_s: float) -> None:
        self._pause = asyncio.get_running_loop().create_future()
        self._alarm.set(delay_s)
        try:
            await self._pause
        finally:
            self._pause = None
