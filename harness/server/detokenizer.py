"""From token ids to text, one token at a time: what can still change is held back.

The pieces and the flush joined are the text of all ids; streamed and whole answers both come from
here. Byte-level tokenizers split a character over tokens, and a decoder shows the part as
replacement characters: those at the end wait for the next token. Knows no stop strings.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

Decode = Callable[[Sequence[int]], str]

_REPLACEMENT: Final = "\ufffd"
_LONGEST_PART: Final = 3  # a character has at most four bytes, so three may be there before it
_LONG_WINDOW: Final = 16


class Detokenizer:
    """One answer's text. `skipped` ids (special tokens) have no text.

    Only a window of the last ids is decoded again with each token: those since the border before
    the last clean one, since a decoder may treat the first id of a text apart.
    """

    def __init__(self, decode: Decode, skipped: frozenset[int] = frozenset()) -> None:
        self._decode = decode
        self._skipped = skipped
        self._window: list[int] = []
        self._border = 0  # ids of the window before the last clean border
        self._told = 0  # characters of the window's text that have been given out

    def feed(self, token_id: int) -> str:
        """The text that has become certain with this token; often empty for a part."""
        if token_id in self._skipped:
            return ""
        self._window.append(token_id)
        text = self._decode(self._window)
        certain = len(text) - self._uncertain(text)
        piece = text[self._told : certain]
        self._told = max(self._told, certain)
        if piece and certain == len(text):
            self._slide(self._border)
        elif len(self._window) > _LONG_WINDOW:
            self._cut(text)
        return piece

    def flush(self) -> str:
        """What is still held, as it stands."""
        text = self._decode(self._window)
        piece = text[self._told :]
        self._told = len(text)
        return piece

    def _uncertain(self, text: str) -> int:
        """How many characters at the end may still become others.

        Some decoders show each byte of a part, and all bytes beside it, as a character; but a part
        that has not become one after three tokens more never will.
        """
        count = len(text) - len(text.rstrip(_REPLACEMENT))
        is_fresh = len(self._window) - self._border <= _LONGEST_PART
        return count if is_fresh else min(count, _LONGEST_PART)

    def _slide(self, count: int) -> None:
        """Forgets the window's first `count` ids; all that is left has been told."""
        del self._window[:count]
        self._border = len(self._window)
        self._told = len(self._decode(self._window))

    def _cut(self, text: str) -> None:
        """Shortens a window that finds no clean border, where its two halves decode apart."""
        for count in range(len(self._window) - _LONGEST_PART, 0, -1):
            head = self._decode(self._window[:count])
            if len(head) <= self._told and head + self._decode(self._window[count:]) == text:
                del self._window[:count]
                self._border = 0
                self._told -= len(head)
                return
