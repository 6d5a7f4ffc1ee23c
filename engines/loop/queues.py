"""Who waits, who runs, who lies on the host: the loop's sets, in order of arrival.

First-come order survives preemption because it is the order of these sets, not of events.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from heapq import merge
from operator import attrgetter

from engines.api import RequestId
from engines.loop.sequence import Sequence

_by_arrival = attrgetter("arrival_index")


class Waiting:
    """Waiting sequences: fresh ones in order of arrival, preempted ones merged in by theirs.

    Taking one out and looking at the first few cost the same however many wait.
    """

    def __init__(self) -> None:
        self.by_id: dict[RequestId, Sequence] = {}
        self._fresh: OrderedDict[RequestId, Sequence] = OrderedDict()
        self._preempted: list[Sequence] = []

    def __len__(self) -> int:
        return len(self.by_id)

    def __iter__(self) -> Iterator[Sequence]:
        fresh: Iterable[Sequence] = self._fresh.values()
        if not self._preempted:
            return iter(fresh)
        return merge(self._preempted, fresh, key=_by_arrival)

    def add_fresh(self, sequence: Sequence) -> None:
        """It has just arrived, after all others."""
        self.by_id[sequence.request_id] = sequence
        self._fresh[sequence.request_id] = sequence

    def add_preempted(self, sequence: Sequence) -> None:
        """It was resident and waits again, at its old place."""
        self.by_id[sequence.request_id] = sequence
        insort(self._preempted, sequence, key=_by_arrival)

    def remove(self, sequence: Sequence) -> None:
        del self.by_id[sequence.request_id]
        if self._fresh.pop(sequence.request_id, None) is None:
            self._preempted.remove(sequence)


class Resident:
    """Sequences that hold memory, found by id and listed in order of arrival."""

    def __init__(self) -> None:
        self.by_id: dict[RequestId, Sequence] = {}
        self.in_order: list[Sequence] = []

    def __len__(self) -> int:
        return len(self.in_order)

    def add(self, sequence: Sequence) -> None:
        self.by_id[sequence.request_id] = sequence
        order = self.in_order
        if not order or order[-1].arrival_index < sequence.arrival_index:
            order.append(sequence)
        else:
            insort(order, sequence, key=_by_arrival)

    def remove(self, sequence: Sequence) -> None:
        del self.by_id[sequence.request_id]
        del self.in_order[bisect_left(self.in_order, sequence.arrival_index, key=_by_arrival)]
