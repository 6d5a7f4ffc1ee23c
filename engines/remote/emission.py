"""What came over the wire, handed on in batches: many streams speak, one sink listens.

Events within a fifth of a millisecond share a batch and its time stamp; nothing waits longer than
one turn of the loop. Reads no socket and decides nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from engines.api import Clock, Finish, RequestId, Sink, StepEvents

SAME_INSTANT_S: Final = 0.0002


class Emitter:
    """Collects events for `sink`. `on_finish` is called after a batch that ended requests."""

    def __init__(
        self,
        sink: Sink,
        clock: Clock,
        loop: asyncio.AbstractEventLoop,
        on_finish: Callable[[], None],
    ) -> None:
        self._sink = sink
        self._clock = clock
        self._loop = loop
        self._on_finish = on_finish
        self._time_s = 0.0
        self._pending = False
        self._names: list[RequestId] = []
        self._ids: list[Sequence[int]] = []
        self._finished: list[Finish] = []

    def tokens(self, request_id: RequestId, ids: Sequence[int]) -> float:
        """Notes a token event now; the instant that it is given."""
        self._open()
        self._names.append(request_id)
        self._ids.append(ids)
        return self._time_s

    def finish(self, finish: Finish) -> None:
        self._open()
        self._finished.append(finish)

    def flush(self) -> None:
        """Hands on what has been collected, if anything."""
        if not self._pending:
            return
        events = StepEvents(self._time_s, self._names, self._ids, self._finished)
        self._pending = False
        self._names, self._ids, self._finished = [], [], []
        self._sink.emit(events)
        if events.finished:
            self._on_finish()

    def _open(self) -> None:
        now_s = self._clock.now()
        if self._pending and now_s - self._time_s > SAME_INSTANT_S:
            self.flush()
        if not self._pending:
            self._pending = True
            self._time_s = now_s
            self._loop.call_soon(self.flush)
