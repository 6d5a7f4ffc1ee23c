"""What the engine has delivered for one HTTP request and nobody has written out yet. Bounded.

Belongs to the event loop's thread. Knows neither tokens' text nor HTTP.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from engines.api import Finish


@dataclass(slots=True)
class Delivery:
    """For one of the request's prompts: tokens in order, and its end if it has come."""

    token_ids: list[int] = field(default_factory=list)
    finish: Finish | None = None


class Overflow(Exception):
    """The reader is so slow that more would have to be kept for it than is allowed."""


class Mailbox:
    """Deliveries by the prompt's place. What is not taken in time is joined, never dropped.

    The bound holds while the reader is waited for: a moment in which this process does something
    else is not the reader's fault.
    """

    def __init__(self, most_tokens: int) -> None:
        self._most_tokens = most_tokens
        self._waiting: dict[int, Delivery] = {}
        self._num_tokens = 0
        self._news = asyncio.Event()
        self._waits_for_reader = False
        self.has_overflown = False

    def put(self, place: int, token_ids: list[int], finish: Finish | None = None) -> bool:
        """Whether there is still room. If not, `take` raises `Overflow` from now on."""
        delivery = self._waiting.setdefault(place, Delivery())
        delivery.token_ids += token_ids
        delivery.finish = finish or delivery.finish
        self._num_tokens += len(token_ids)
        self._news.set()
        if self._waits_for_reader and self._num_tokens > self._most_tokens:
            self.has_overflown = True
        return not self.has_overflown

    async def take(self) -> dict[int, Delivery]:
        """All that has come since the last call, once there is something."""
        await self._news.wait()
        if self.has_overflown:
            raise Overflow
        self._news.clear()
        taken, self._waiting, self._num_tokens = self._waiting, {}, 0
        return taken

    @contextmanager
    def writing(self) -> Iterator[None]:
        """While something is written to the reader."""
        self._waits_for_reader = True
        try:
            yield
        finally:
            self._waits_for_reader = False
