"""What a policy is shown: the loop's own sets behind read-only names, nothing copied."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from engines.api import Clock, Due, RequestSource
from engines.loop.kv.api import KVCache, Trial
from engines.loop.roster import Roster
from engines.loop.sequence import SequenceView


class LoopView:
    """See `plan.View`. One object serves a whole run; `now_s` is the instant of planning."""

    __slots__ = ("_cache", "_roster", "_source", "_trial", "now_s")

    def __init__(self, roster: Roster, cache: KVCache, source: RequestSource) -> None:
        self._roster = roster
        self._cache = cache
        self._source = source
        self._trial: Trial | None = None
        self.now_s = 0.0

    def at(self, clock: Clock) -> LoopView:
        """The same view, now."""
        self.now_s = clock.now()
        return self

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

    @property
    def next_due(self) -> Due:
        return self._source.next_due()

    def trial(self) -> Trial:
        self._trial = self._cache.trial()
        return self._trial

    def give_up_trial(self) -> None:
        """Whatever was tried is undone."""
        if self._trial is not None:
            self._trial.discard()
            self._trial = None
