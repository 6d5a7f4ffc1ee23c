"""Server-sent events out of bytes that were split anywhere: the framing and nothing above it.

Knows no JSON, no tokens and no socket, so that any client (asyncio or not) can use it. Of an event
only the data is kept. Lines and events are bounded, since a broken server may never end one.
"""

from __future__ import annotations

from typing import Final

MAX_EVENT_BYTES: Final = 8 * 2**20  # a first event may carry the ids of a whole long prompt
_BOM: Final = b"\xef\xbb\xbf"


class StreamError(ValueError):
    """A stream that cannot be followed any further; the message says why."""


class EventDecoder:
    """Turns the bytes of one stream into the data of its events.

    Lines end with CRLF, LF or CR. Comments and all fields but `data` are passed over, several
    `data` lines of an event are joined with LF.
    """

    __slots__ = ("_after_cr", "_data", "_held", "_limit", "_pieces", "_size", "_started")

    def __init__(self, max_event_bytes: int = MAX_EVENT_BYTES) -> None:
        self._limit = max_event_bytes
        self._pieces: list[bytes] = []  # of a line whose end has not come
        self._held = 0
        self._data: list[bytes] = []
        self._size = 0
        self._started = False
        self._after_cr = False

    def feed(self, chunk: bytes) -> list[bytes]:
        """The events that `chunk` completes. Raises `StreamError` for one without end."""
        if whole := self._whole_events(chunk):
            return whole
        if self._after_cr and chunk.startswith(b"\n"):
            chunk = chunk[1:]
            self._after_cr = False
        if not chunk:
            return []
        self._after_cr = chunk.endswith(b"\r")
        events: list[bytes] = []
        for piece in chunk.splitlines(keepends=True):
            line = piece.rstrip(b"\r\n")
            if len(line) < len(piece):
                self._end_line(line, events)
            else:
                self._hold(piece)
        return events

    def close(self) -> list[bytes]:
        """What is left when the stream ends: some servers leave out the last empty line."""
        events: list[bytes] = []
        if self._pieces:
            self._end_line(b"", events)
        if self._data:
            self._end_line(b"", events)
        return events

    def _whole_events(self, chunk: bytes) -> list[bytes]:
        """The common case: a chunk is whole events of one line each, and nothing is pending.

        Empty where it is not.
        """
        if (
            self._pieces
            or self._data
            or not (chunk.startswith(b"data: ") and chunk.endswith(b"\n\n"))
            or b"\r" in chunk
            or len(chunk) > self._limit
        ):
            return []
        events = chunk[6:-2].split(b"\n\ndata: ")
        if chunk.count(b"\n") != 2 * len(events):
            return []
        self._started = True  # from here on a byte order mark has no meaning
        self._after_cr = False
        return events

    def _hold(self, piece: bytes) -> None:
        self._held += len(piece)
        self._check(self._held)
        self._pieces.append(piece)

    def _end_line(self, line: bytes, events: list[bytes]) -> None:
        if self._pieces:
            line = b"".join(self._pieces) + line
            self._pieces.clear()
            self._held = 0
        if not self._started:
            self._started = True
            line = line.removeprefix(_BOM)
        if not line:
            if self._data:
                events.append(b"\n".join(self._data))
                self._data.clear()
                self._size = 0
            return
        field, _, value = line.partition(b":")
        if field == b"data":
            self._size += len(line)
            self._check(self._size)
            self._data.append(value.removeprefix(b" "))

    def _check(self, size: int) -> None:
        if size > self._limit:
            raise StreamError(f"an event of the stream is longer than {self._limit} bytes")
