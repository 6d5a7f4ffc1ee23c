"""A source that tells a recorder what it hands out, since a closed loop sets arrivals late."""

from __future__ import annotations

from engines.api import Due, Request, RequestId, RequestSource
from harness.records.writer import CellRecorder


class RecordedSource:
    """The inner source in everything; the recorder sees each request on its way out."""

    def __init__(self, inner: RequestSource, recorder: CellRecorder) -> None:
        self._inner = inner
        self._recorder = recorder

    def take(self, now_s: float, limit: int) -> list[Request]:
        requests = self._inner.take(now_s, limit)
        self._recorder.rescheduled(requests)
        return requests

    def next_due(self) -> Due:
        return self._inner.next_due()

    def cancelled(self) -> tuple[RequestId, ...]:
        return self._inner.cancelled()

    def wait(self, until_s: float) -> None:
        self._inner.wait(until_s)
