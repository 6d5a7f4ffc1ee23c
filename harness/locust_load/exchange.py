"""One request and its answer: what came when, and what became of it.

The meaning of the stream's bytes is `engines.remote`'s; here are the clock, the limits and the
errors. Retries nothing: a failure is a result.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from http.client import HTTPException, RemoteDisconnected
from typing import Final

from engines.api import CountedBy, FinishReason, Status
from engines.remote.completion import Completion, shortened
from engines.remote.refusals import refusal
from engines.remote.sse import EventDecoder, StreamError
from harness.locust_load.connections import Connection

_AFTER_DONE_S: Final = 1.0
_LONGEST_ERROR: Final = 64 * 1024
_LONGEST_PLAIN_ANSWER: Final = 64 * 2**20
_TOO_MANY: Final = 4, 1024  # times the tokens asked for, plus these: such a stream never ends
RUN_ENDED: Final = "the run ended before this request did"


@dataclass(frozen=True, slots=True)
class Answer:
    """Times in seconds of the given clock. At `times_s[i]` came `counts[i]` tokens.

    `prompt_tokens` and `cached_tokens` are the server's own counts, `None` where it tells none.
    """

    sent_s: float | None
    ended_s: float
    status: Status
    finish_reason: FinishReason | None
    reason: str
    times_s: tuple[float, ...] = ()
    counts: tuple[int, ...] = ()
    counted_by: CountedBy | None = None
    prompt_tokens: int | None = None
    cached_tokens: int | None = None


class Exchange:
    """Runs once. `idle_timeout_s` is the longest wait for a next token."""

    def __init__(
        self,
        connection: Connection,
        clock: Callable[[], float],
        idle_timeout_s: float,
        max_tokens: int | None = None,
        count_text: Callable[[str], int] | None = None,
    ) -> None:
        self._connection = connection
        self._clock = clock
        self._idle_timeout_s = idle_timeout_s
        self._most = None if max_tokens is None else _TOO_MANY[0] * max_tokens + _TOO_MANY[1]
        self._count_text = count_text
        self._completion = Completion()
        self._times_s: list[float] = []
        self._sent_s: float | None = None
        self._deadline_s = 0.0

    def run(self, path: str, body: bytes, headers: dict[str, str]) -> Answer:
        self._sent_s = self._clock()
        self._deadline_s = self._sent_s + self._idle_timeout_s
        try:
            self._connection.send("POST", path, body, headers, self._left_s())
            http_status, content_type = self._connection.await_head(self._left_s())
            if 300 <= http_status < 400:
                return self._answer("failed", None, f"HTTP {http_status}: redirected elsewhere")
            if http_status != 200:
                return self._answer(*_refused(http_status, self._read_whole(_LONGEST_ERROR)))
            if content_type == "text/event-stream":
                self._follow()
            else:
                self._read_plain()
        except (OSError, HTTPException, StreamError) as error:
            if not self._completion.ended:
                return self._answer(*self._broken(error))
        if self._connection.aborted and not self._completion.ended:
            return self.cancelled(RUN_ENDED)
        return self._answer(*self._completion.outcome())

    def cancelled(self, reason: str) -> Answer:
        """What there is of an answer that nobody waits for any more."""
        return self._answer("cancelled", None, reason)

    def _follow(self) -> None:
        decoder = EventDecoder()
        while chunk := self._connection.read(self._left_s()):
            now_s = self._clock()
            for event in decoder.feed(chunk):
                self._take(event, now_s)
            if self._completion.error is not None:
                return
        for event in decoder.close():
            self._take(event, self._clock())

    def _take(self, event: bytes, now_s: float) -> None:
        completion = self._completion
        if completion.read(event):
            self._times_s.append(now_s)
            self._deadline_s = now_s + self._idle_timeout_s
            if self._most is not None and len(self._times_s) > self._most:
                raise StreamError(f"the server sent more than {self._most} tokens")
        elif completion.done:
            self._deadline_s = min(self._deadline_s, now_s + _AFTER_DONE_S)

    def _read_plain(self) -> None:
        """An answer in one piece, from a server that does not stream."""
        body = self._read_whole(_LONGEST_PLAIN_ANSWER)
        if self._completion.read(body):
            self._times_s.append(self._clock())
        self._completion.done = True

    def _read_whole(self, limit: int) -> bytes:
        parts: list[bytes] = []
        while (left := limit - sum(map(len, parts))) > 0:
            part = self._connection.read(self._left_s())
            if not part:
                break
            parts.append(part[:left])
        return b"".join(parts)

    def _left_s(self) -> float:
        """Until the next token must have come; what is not above 0 is a timeout."""
        left_s = self._deadline_s - self._clock()
        if left_s <= 0:
            raise TimeoutError
        return left_s

    def _broken(self, error: Exception) -> tuple[Status, FinishReason | None, str]:
        if self._connection.aborted:
            return "cancelled", None, RUN_ENDED
        if isinstance(error, TimeoutError):
            what = "next" if self._times_s else "first"
            return "timeout", None, f"no {what} token within {self._idle_timeout_s:g} s"
        if isinstance(error, StreamError):
            return "failed", None, str(error)
        return "failed", None, broken_connection(error, sum(self._completion.counts))

    def _answer(self, status: Status, finish: FinishReason | None, reason: str) -> Answer:
        counts, counted_by = self._completion.final_counts(self._count_text)
        usage = self._completion.usage
        return Answer(
            sent_s=self._sent_s,
            ended_s=self._clock(),
            status=status,
            finish_reason=finish,
            reason=reason,
            times_s=tuple(self._times_s),
            counts=tuple(counts),
            counted_by=counted_by if counts else None,
            prompt_tokens=usage.prompt_tokens,
            cached_tokens=usage.cached_tokens,
        )


def not_connected(error: OSError, now_s: float) -> Answer:
    """The answer to a request that found no server."""
    why = "no answer" if isinstance(error, TimeoutError) else error.strerror or str(error)
    return Answer(None, now_s, "failed", None, f"could not connect: {shortened(why)}")


def broken_connection(error: Exception, tokens: int) -> str:
    """A sentence for a connection that broke while an answer was due."""
    if isinstance(error, RemoteDisconnected):
        return "the server closed the connection without an answer"
    name = type(error).__name__
    why = (error.strerror if isinstance(error, OSError) else None) or str(error) or name
    return f"the connection broke after {tokens} tokens: {shortened(why)} ({name})"


def _refused(http_status: int, body: bytes) -> tuple[Status, None, str]:
    status, reason = refusal(http_status, body)
    return status, None, reason
