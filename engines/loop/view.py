"""What a policy is shown: the loop's own sets behind read-only names, nothing copied."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from engines.api import END, Due
from engines.loop.kv.api import KVCache, Trial
from engines.loop.roster import Roster
from engines.loop.sequence import SequenceView


class LoopView:
    """See `plan.View`. One object serves a whole run; `now_s` is the instant of planning.

    Time and the source's state are looked up once a turn, so that a plan can be made again from
    what is written down.
    """

    __slots__ = ("_cache", "_roster", "_trial", "last_end_s", "next_due", "now_s")

    def __init__(self, roster: Roster, cache: KVCache) -> None:
        self._roster = roster
        self._cache = cache
        self._trial: Trial | None = None
        self.now_s = 0.0
        self.last_end_s = -math.inf
        self.next_due: Due = END

    def look(self, now_s: float, next_due: Due) -> None:
        """A new turn."""
        self.now_s = now_s
        self.next_due = next_due

    @property
    def running(self) -> Sequence[SequenceView]:
        return self._roster.running.in_order

    @property
    def waiting(self) -> Iterable[SequenceView]:
        return self._roster.waiting

    @property
    def num_waiting(self) -> int:
        return len(self._roster.waiting)

    @property
    def swapped(self) -> Sequence[SequenceView]:
        return self._roster.swapped.in_order

    def trial(self) -> Trial:
        self._trial = self._cache.trial()
        return self._trial

    def give_up_trial(self) -> None:
        """Whatever was tried is undone."""
        if self._trial is not None:
            self._trial.discard()
            self._trial = None
