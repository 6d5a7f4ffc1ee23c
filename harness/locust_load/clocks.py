"""How far a worker's clock is ahead of the master's, by the quickest of several pings."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RoundTrip:
    """Sent and back on the master's clock; answered on the worker's."""

    sent_s: float
    answered_s: float
    back_s: float


@dataclass(frozen=True, slots=True)
class ClockOffset:
    """The worker's clock minus the master's, within `uncertainty_s` in either direction."""

    ahead_s: float = 0.0
    uncertainty_s: float = 0.0


def measure(trips: Iterable[RoundTrip]) -> ClockOffset | None:
    """The answer came somewhere between sending and return; the quickest trip tells most.

    The method is Cristian's (1989). `None` without a trip.
    """
    quickest = min(trips, key=lambda trip: trip.back_s - trip.sent_s, default=None)
    if quickest is None:
        return None
    middle_s = (quickest.sent_s + quickest.back_s) / 2
    uncertainty_s = (quickest.back_s - quickest.sent_s) / 2
    return ClockOffset(quickest.answered_s - middle_s, uncertainty_s)
