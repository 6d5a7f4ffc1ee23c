"""Who comes first: the order in which waiting requests, and at times residents, are served.

An order ranks; it admits nobody and knows no memory. What it has to remember (what a client has
been served) is an immutable value that the policy carries in its own state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from heapq import heapify, heappop, heapreplace, merge
from itertools import chain
from operator import attrgetter
from typing import Final, Literal, Protocol

from engines.loop.plan import Plan, View
from engines.loop.sequence import SequenceView

Rank = tuple[float, int]
Share = Literal["class", "client"]
_by_arrival = attrgetter("arrival_index")


@dataclass(frozen=True, slots=True)
class Served:
    """Positions computed for each group so far, and the groups that have been there ever since
    they were first looked at.
    """

    positions: Mapping[str, float] = field(default_factory=dict)
    present: frozenset[str] = frozenset()


NOTHING_SERVED: Final = Served()


class Order(Protocol):
    """Ranks requests: the smaller, the sooner. Equal ones go by arrival.

    An order that `preempts` lets a waiting request of a strictly smaller first rank take the
    place of a resident; the others only choose who comes in next.
    """

    @property
    def name(self) -> str: ...
    @property
    def preempts(self) -> bool: ...

    def look(self, view: View, served: Served) -> Served:
        """What is remembered, brought up to date before candidates are ranked."""
        ...

    def rank(self, sequence: SequenceView, served: Served) -> Rank: ...

    def candidates(self, view: View, served: Served) -> Iterator[SequenceView]:
        """The waiting and the swapped-out, best first; lazy where that saves work."""
        ...

    def charge(self, view: View, plan: Plan, served: Served) -> Served:
        """What is remembered after `plan`."""
        ...


@dataclass(frozen=True, slots=True)
class FirstCome:
    """First come, first served. Starvation bound: only those who came before go before."""

    name: str = "fcfs"
    preempts: bool = False

    def look(self, view: View, served: Served) -> Served:
        return served

    def rank(self, sequence: SequenceView, served: Served) -> Rank:
        return 0.0, sequence.arrival_index

    def candidates(self, view: View, served: Served) -> Iterator[SequenceView]:
        if not view.swapped:
            return iter(view.waiting)
        return merge(view.swapped, view.waiting, key=_by_arrival)

    def charge(self, view: View, plan: Plan, served: Served) -> Served:
        return served


@dataclass(frozen=True, slots=True)
class ByKey:
    """The smallest key first. No starvation bound: a stream of better ones can hold one up."""

    name: str
    key: Callable[[SequenceView], float]
    preempts: bool = False

    def look(self, view: View, served: Served) -> Served:
        return served

    def rank(self, sequence: SequenceView, served: Served) -> Rank:
        return self.key(sequence), sequence.arrival_index

    def candidates(self, view: View, served: Served) -> Iterator[SequenceView]:
        key = self.key
        heap = [(key(s), s.arrival_index, s) for s in view.waiting]
        heap += [(key(s), s.arrival_index, s) for s in view.swapped]
        heapify(heap)
        while heap:
            yield heappop(heap)[2]

    def charge(self, view: View, plan: Plan, served: Served) -> Served:
        return served


@dataclass(frozen=True, slots=True)
class Fair:
    """The group (class or client) that has been served least comes first.

    Virtual token counters (Sheng et al., Fairness in Serving Large Language Models, OSDI 2024),
    one unit a computed position: a group that comes back starts no lower than the least served of
    those present, or of those who were there last, so that idling earns no credit. Starvation
    bound: while a group has requests waiting, another is admitted before it only until that one's
    counter has passed its own.
    """

    by: Share = "class"
    name: str = "fair"
    preempts: bool = False

    def look(self, view: View, served: Served) -> Served:
        present = frozenset(map(self.group, [*view.running, *view.swapped, *view.waiting]))
        fresh = present - served.present
        if not fresh:
            return served if present == served.present else Served(served.positions, present)
        positions = dict(served.positions)
        stayed = [positions.get(name, 0.0) for name in present & served.present or served.present]
        least = min(stayed, default=0.0)
        for name in fresh:
            positions[name] = max(positions.get(name, 0.0), least)
        return Served(positions, present)

    def rank(self, sequence: SequenceView, served: Served) -> Rank:
        return served.positions.get(self.group(sequence), 0.0), sequence.arrival_index

    def candidates(self, view: View, served: Served) -> Iterator[SequenceView]:
        """Each one offered counts for its group at once, so that groups alternate."""
        queues: dict[str, list[SequenceView]] = {}
        for sequence in FirstCome().candidates(view, served):
            queues.setdefault(self.group(sequence), []).append(sequence)
        positions = served.positions
        heap = [
            (positions.get(name, 0.0), queue[0].arrival_index, name, 0)
            for name, queue in queues.items()
        ]
        heapify(heap)
        while heap:
            count, _, name, index = heap[0]
            sequence = queues[name][index]
            yield sequence
            if index + 1 == len(queues[name]):
                heappop(heap)
            else:
                behind = queues[name][index + 1].arrival_index
                heapreplace(heap, (count + sequence.num_known, behind, name, index + 1))

    def charge(self, view: View, plan: Plan, served: Served) -> Served:
        positions = dict(served.positions)
        work = plan.work
        resident: set[str] = set()
        for sequence in view.running:
            group = self.group(sequence)
            resident.add(group)
            n = work.get(sequence.request_id, 0)
            if n:
                positions[group] = positions.get(group, 0.0) + n
        newcomers = plan.admit.keys() | plan.resume.keys()
        if newcomers:
            for sequence in [*view.waiting, *view.swapped]:
                if sequence.request_id in newcomers:
                    group = self.group(sequence)
                    n = work.get(sequence.request_id, 0)
                    positions[group] = positions.get(group, 0.0) + n
        return Served(positions, self._still_present(view, served.present, resident))

    def _still_present(
        self, view: View, present: frozenset[str], resident: set[str]
    ) -> frozenset[str]:
        """Without those who have left; of the waiting no more are looked at than it takes."""
        gone = set(present - resident)
        for sequence in chain(view.swapped, view.waiting):
            if not gone:
                return present
            gone.discard(self.group(sequence))
        return present - gone

    def group(self, sequence: SequenceView) -> str:
        request = sequence.request
        return request.request_class if self.by == "class" else request.session or ""


def _priority(sequence: SequenceView) -> float:
    return sequence.request.priority


def _length(sequence: SequenceView) -> float:
    return sequence.max_len


def _remaining(sequence: SequenceView) -> float:
    return sequence.max_len - 1 - sequence.num_computed


FIRST_COME: Final = FirstCome()
PRIORITY: Final = ByKey("priority", _priority, preempts=True)
SHORTEST_JOB: Final = ByKey("sjf", _length)
SHORTEST_REMAINING: Final = ByKey("srpt", _remaining, preempts=True)
