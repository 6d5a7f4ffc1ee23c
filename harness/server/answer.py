"""One answer as it grows: from the engine's tokens and end to text, count and finish reason.

The same for streamed and whole answers, so that both are equal. Knows no HTTP.
"""

from __future__ import annotations

from collections.abc import Sequence

from engines.api import Finish, FinishReason
from harness.server.detokenizer import Detokenizer
from harness.server.stop_strings import StopFinder


class Answer:
    """Takes tokens in order and gives the text that each delivery makes certain.

    Stop strings are looked for from the token after the first `min_tokens` on. A token at which
    the engine stopped is counted and has no text. Tokens after a stop string are not counted.
    """

    def __init__(
        self, detokenizer: Detokenizer, stops: Sequence[str] = (), min_tokens: int = 0
    ) -> None:
        self._detokenizer = detokenizer
        self._finder = StopFinder(stops)
        self._min_tokens = min_tokens
        self.num_tokens = 0
        self.finish_reason: FinishReason | None = None
        self.finish: Finish | None = None

    @property
    def stopped_early(self) -> bool:
        """A stop string has ended it, and the engine does not know yet."""
        return self._finder.found and self.finish is None

    @property
    def is_over(self) -> bool:
        return self.finish_reason is not None or self.finish is not None

    def take(self, token_ids: Sequence[int], finish: Finish | None) -> str:
        """The new text. After the last delivery `finish_reason` stands if it ended well."""
        textless = len(token_ids) - 1 if _stopped_at_token(finish) else len(token_ids)
        pieces = []
        for place, token_id in enumerate(token_ids):
            if self._finder.found:
                break
            self.num_tokens += 1
            if place < textless:
                pieces.append(self._show(self._detokenizer.feed(token_id)))
        if finish is not None:
            self.finish = finish
            if finish.status == "ok":
                self.finish_reason = finish.finish_reason or "length"
                pieces.append(self._finder.feed(self._detokenizer.flush()))
                pieces.append(self._finder.flush())
        if self._finder.found:
            self.finish_reason = "stop"
        return "".join(pieces)

    def _show(self, piece: str) -> str:
        return piece if self.num_tokens <= self._min_tokens else self._finder.feed(piece)


def _stopped_at_token(finish: Finish | None) -> bool:
    return finish is not None and finish.status == "ok" and finish.finish_reason == "stop"
