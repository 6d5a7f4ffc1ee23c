"""Room for a bounded number of bytes: who finds none waits, in the order of arrival.

Belongs to the event loop's thread. Knows nothing of what the bytes are.
"""

from __future__ import annotations

import asyncio
from collections import deque


class Room:
    """`size` in bytes. Nobody may ask for more than all of it."""

    def __init__(self, size: int) -> None:
        self._size = self._free = size
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    async def take(self, size: int) -> None:
        """Returns once there is room. One that is cancelled meanwhile has taken none."""
        assert size <= self._size
        if size <= self._free and not self._waiting:
            self._free -= size
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append((size, turn))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._free += size
            self._let_in()
            raise

    def give_back(self, size: int) -> None:
        self._free += size
        self._let_in()

    def _let_in(self) -> None:
        while self._waiting:
            size, turn = self._waiting[0]
            if not turn.done():
                if size > self._free:
                    return
                self._free -= size
                turn.set_result(None)
            self._waiting.popleft()
