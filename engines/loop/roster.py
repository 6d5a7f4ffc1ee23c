"""Every live sequence and where it is: waiting, running (resident) or swapped out.

Moves between these places are made here, in one line each, together with the sequence's own
record of them. The memory moves with them, but that is the cache's matter.
"""

from __future__ import annotations

from operator import attrgetter
from typing import Literal

from engines.api import Request, RequestId
from engines.loop.plan import PreemptMode
from engines.loop.queues import Resident, Waiting
from engines.loop.sequence import Sequence
from engines.loop.stalls import StepSums

_by_arrival = attrgetter("arrival_index")
Place = Literal["waiting", "running", "swapped"]


class Roster:
    """The loop's sequences. A request id stands in exactly one of the three places."""

    def __init__(self, eos_token_ids: tuple[int, ...] = ()) -> None:
        self._eos_token_ids = eos_token_ids
        self.waiting = Waiting()
        self.running = Resident()
        self.swapped = Resident()
        self.steps = StepSums()
        self._arrivals = 0

    def __len__(self) -> int:
        return len(self.waiting) + len(self.running) + len(self.swapped)

    @property
    def first_in_line(self) -> Sequence | None:
        """The first in order of arrival that waits or lies on the host."""
        first = next(iter(self.waiting), None)
        if not self.swapped.in_order:
            return first
        swapped = self.swapped.in_order[0]
        return swapped if first is None else min(first, swapped, key=_by_arrival)

    def submit(self, request: Request, max_tokens: int) -> None:
        """A new one waits behind all others."""
        sequence = Sequence(request, max_tokens, self._arrivals, self._eos_token_ids, self.steps)
        self.waiting.add_fresh(sequence)
        self._arrivals += 1

    def preempt(self, request_id: RequestId, mode: PreemptMode, now_s: float) -> None:
        sequence = self.running.by_id[request_id]
        self.running.remove(sequence)
        sequence.preempt(now_s, keeps_cache=mode == "swap")
        if mode == "swap":
            self.swapped.add(sequence)
        else:
            self.waiting.add_preempted(sequence)

    def resume(self, request_id: RequestId) -> None:
        sequence = self.swapped.by_id[request_id]
        self.swapped.remove(sequence)
        sequence.resume()
        self.running.add(sequence)

    def admit(self, request_id: RequestId, hit_tokens: int) -> None:
        sequence = self.waiting.by_id[request_id]
        self.waiting.remove(sequence)
        sequence.num_computed = hit_tokens
        if sequence.prefix_hit_tokens is None:
            sequence.prefix_hit_tokens = hit_tokens
        else:  # a hit beyond its own mark stands for positions that were never executed for it
            sequence.later_hit_tokens += max(0, hit_tokens - sequence.high_water)
        self.running.add(sequence)

    def find(self, request_id: RequestId) -> Sequence | None:
        """The live sequence of that name, wherever it is."""
        return (
            self.running.by_id.get(request_id)
            or self.waiting.by_id.get(request_id)
            or self.swapped.by_id.get(request_id)
        )

    def remove(self, sequence: Sequence) -> Place:
        """Takes a sequence out for good; returns where it was."""
        name = sequence.request_id
        if name in self.running.by_id:
            self.running.remove(sequence)
            return "running"
        if name in self.swapped.by_id:
            self.swapped.remove(sequence)
            return "swapped"
        self.waiting.remove(sequence)
        return "waiting"

    def everybody(self) -> list[Sequence]:
        return [*self.running.in_order, *self.swapped.in_order, *self.waiting.by_id.values()]
