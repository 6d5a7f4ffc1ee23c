"""Output that nobody reads to its end, as under `| head`, changes no exit code."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from typing_extensions import Buffer


class _Unread(io.FileIO):
    """What a reader that has gone would have got is dropped."""

    def write(self, data: Buffer, /) -> int:
        try:
            return super().write(data)
        except BrokenPipeError:
            return memoryview(data).nbytes


def unread(stream: TextIO) -> TextIO:
    """The same descriptor, in text of the same encoding; a stream that is no file stays itself."""
    if not isinstance(stream, io.TextIOWrapper):
        return stream
    unbuffered = isinstance(stream.buffer, io.FileIO)
    raw = stream.buffer if unbuffered else getattr(stream.buffer, "raw", None)
    if not isinstance(raw, io.FileIO):
        return stream
    stream.flush()
    unread_raw = _Unread(raw.fileno(), "w", closefd=False)
    return io.TextIOWrapper(
        unread_raw if unbuffered else io.BufferedWriter(unread_raw),
        encoding=stream.encoding,
        errors=stream.errors,
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )
