"""One prompt in flight, as the HTTP process sees it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

from engines.api import Request
from harness.server.mailbox import Mailbox

End = Literal["stop", "length", "abort", "error"]
ENDS: Final[tuple[End, ...]] = ("stop", "length", "abort", "error")


@dataclass(slots=True)
class Ticket:
    """`place` is the prompt's in its HTTP request. Times on the HTTP process's clock."""

    request: Request
    place: int
    mailbox: Mailbox
    on_overflow: Callable[[], None]
    arrived_s: float
    first_s: float | None = None
    last_s: float | None = None
    num_tokens: int = 0

    @property
    def ttft_s(self) -> float | None:
        return None if self.first_s is None else self.first_s - self.arrived_s

    @property
    def e2e_s(self) -> float | None:
        return None if self.last_s is None else self.last_s - self.arrived_s

    @property
    def tpot_s(self) -> float | None:
        """Undefined for one token, and when all came at once."""
        if self.first_s is None or self.last_s is None or self.last_s <= self.first_s:
            return None
        return (self.last_s - self.first_s) / (self.num_tokens - 1)
