"""Finds stop strings in a text that comes in pieces, and lets no part of one out.

What could be the beginning of a stop string is held back until it is known. Knows no tokens.
"""

from __future__ import annotations

from collections.abc import Sequence


class StopFinder:
    """Of several stop strings the one that is complete first ends the text, however it is cut."""

    def __init__(self, stops: Sequence[str] = ()) -> None:
        self._stops = tuple(stops)
        self._longest = max((len(stop) for stop in stops), default=0)
        self._held = ""
        self.found = False

    def feed(self, piece: str) -> str:
        """What may be shown now. Once `found`, that was the last of the text."""
        if not self._stops or self.found:
            return "" if self.found else piece
        text = self._held + piece
        ends = [(at + len(stop), at) for stop in self._stops if (at := text.find(stop)) >= 0]
        if ends:
            self.found, self._held = True, ""
            return text[: min(ends)[1]]
        return self._hold(text)

    def flush(self) -> str:
        """What was held, when no more text comes."""
        held, self._held = self._held, ""
        return held

    def _hold(self, text: str) -> str:
        """Keeps the longest end of `text` that a stop string begins with."""
        for length in range(min(self._longest - 1, len(text)), 0, -1):
            if any(stop.startswith(text[-length:]) for stop in self._stops):
                self._held = text[-length:]
                return text[:-length]
        self._held = ""
        return text
