"""A plan in the making: what iteration-level policies do with memory, budget and slots.

It knows how to make room, take in and bring back; whom to serve in which order is for the policy
that holds it. Everything is tried on one trial, in the order in which the loop will carry it out.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from engines.api import RequestId
from engines.loop.kv.api import Trial
from engines.loop.plan import Plan, PreemptMode, View
from engines.loop.policies.orders import Served
from engines.loop.policies.rules import Rules
from engines.loop.policies.victims import NEWEST
from engines.loop.sequence import SequenceView

NO_BUDGET: Final = sys.maxsize


@dataclass(slots=True)
class Draft:
    """`budget` is what is left of the step's tokens. `is_short`: memory ran out for a resident."""

    view: View
    rules: Rules
    served: Served
    trial: Trial
    budget: int
    work: dict[RequestId, int] = field(default_factory=dict)
    preempt: dict[RequestId, PreemptMode] = field(default_factory=dict)
    admit: dict[RequestId, int] = field(default_factory=dict)
    resume: dict[RequestId, int] = field(default_factory=dict)
    newcomers: list[SequenceView] = field(default_factory=list)
    is_short: bool = False

    @staticmethod
    def begin(view: View, rules: Rules, served: Served, budget: int) -> Draft:
        return Draft(view, rules, served, view.trial(), budget)

    def plan(self) -> tuple[Plan, Served]:
        """The plan, and what the order remembers after it."""
        plan = Plan(preempt=self.preempt, resume=self.resume, admit=self.admit, work=self.work)
        return plan, self.rules.order.charge(self.view, plan, self.served)

    @property
    def num_residents(self) -> int:
        return len(self.view.running) - len(self.preempt) + len(self.newcomers)

    def residents(self) -> Iterator[SequenceView]:
        """Who will be there after this step, as far as it is planned."""
        preempt = self.preempt
        yield from self.newcomers
        for sequence in self.view.running:
            if sequence.request_id not in preempt:
                yield sequence

    def run(self, sequence: SequenceView, n: int) -> bool:
        """Gives a resident `n` tokens of work in all, if need be at the cost of others' memory."""
        name = sequence.request_id
        if not self.trial.grow(sequence, n) and not self._make_room(sequence, n):
            return False
        self.budget -= n - self.work.get(name, 0)
        self.work[name] = n
        return True

    def run_decodes(self, decodes: Iterable[SequenceView]) -> None:
        """A token each; the budget covers them all."""
        work, preempt, grow = self.work, self.preempt, self.trial.grow
        for sequence in decodes:
            if preempt and sequence.request_id in preempt:
                continue
            if grow(sequence, 1):
                work[sequence.request_id] = 1
                self.budget -= 1
            else:
                self.run(sequence, 1)

    def candidates(self) -> Iterator[SequenceView]:
        """Who may come in, best first. Nobody in a step in which memory ran out."""
        if self.is_short or not (self.view.num_waiting or self.view.swapped):
            return iter(())
        self.served = self.rules.order.look(self.view, self.served)
        return self.rules.order.candidates(self.view, self.served)

    def take_in(
        self, candidates: Iterable[SequenceView], slots: int, share: Callable[[int, int], int]
    ) -> None:
        """Lets candidates in until one has to wait; those behind it wait too.

        `share(remaining, budget)` is how many of its remaining tokens a request may compute now.
        """
        swapped = {sequence.request_id for sequence in self.view.swapped}
        for sequence in candidates:
            if not self.let_in(sequence, slots, share, swapped):
                return

    def let_in(
        self,
        sequence: SequenceView,
        slots: int,
        share: Callable[[int, int], int],
        swapped: Iterable[RequestId],
    ) -> bool:
        """One candidate; a worse-ranked resident may have to leave for it."""
        if self.is_short or self.budget <= 0:
            return False
        name = sequence.request_id
        comes_back = name in swapped
        remaining = sequence.num_remaining if comes_back else sequence.num_known
        if not share(remaining, self.budget):
            return False
        if self.num_residents >= slots and not self._displace(sequence):
            return False
        enter = self._resume if comes_back else self._admit
        if not enter(sequence, share) and not (self._displace(sequence) and enter(sequence, share)):
            return False
        self.newcomers.append(sequence)
        return True

    def _admit(self, sequence: SequenceView, share: Callable[[int, int], int]) -> bool:
        admission = self.rules.admission
        hit = admission.admit(sequence, self.residents(), self.trial)
        if hit is None:
            return False
        self.admit[sequence.request_id] = admission.reserve(sequence)
        self._start(sequence, sequence.num_known - hit, share)
        return True

    def _resume(self, sequence: SequenceView, share: Callable[[int, int], int]) -> bool:
        reserve = self.rules.admission.reserve(sequence)
        if not self.trial.resume(sequence, reserve):
            return False
        self.resume[sequence.request_id] = reserve
        self._start(sequence, sequence.num_remaining, share)
        return True

    def _start(
        self, sequence: SequenceView, remaining: int, share: Callable[[int, int], int]
    ) -> None:
        n = share(remaining, self.budget)
        self.work[sequence.request_id] = n
        self.budget -= n

    def _make_room(self, sequence: SequenceView, n: int) -> bool:
        """Preempts until `n` tokens fit, at last the sequence itself."""
        while not self.trial.grow(sequence, n):
            victim = self._victim()
            if victim is None:
                return False
            self.is_short = True
            self._put_out(victim)
            if victim is sequence:
                return False
        return True

    def _victim(self) -> SequenceView | None:
        rules = self.rules
        if rules.victim is None and rules.order.preempts:
            return self._last_in_order()
        return (rules.victim or NEWEST).choose(self._preemptible(), self.trial)

    def _last_in_order(self) -> SequenceView | None:
        order, served = self.rules.order, self.served
        return max(self._preemptible(), key=lambda s: order.rank(s, served), default=None)

    def _displace(self, sequence: SequenceView) -> bool:
        """Puts out the resident that is ranked last, if the order prefers `sequence` to it.

        Only for the first to come in: the loop preempts before it lets anybody in, and memory
        that another got before the preemption might be elsewhere after it.
        """
        order = self.rules.order
        if not order.preempts or self.newcomers:
            return False
        last = self._last_in_order()
        if last is None or order.rank(sequence, self.served)[0] >= order.rank(last, self.served)[0]:
            return False
        self._put_out(last)
        return True

    def _preemptible(self) -> Iterator[SequenceView]:
        """Residents, newest first, whose going would free memory and lose no advance."""
        for sequence in reversed(self.view.running):
            if (
                sequence.request_id not in self.preempt
                and sequence.has_advanced
                and self.trial.frees(sequence)
            ):
                yield sequence

    def _put_out(self, victim: SequenceView) -> None:
        self.trial.release(victim)
        self.preempt[victim.request_id] = self.rules.preemption
        self.budget += self.work.pop(victim.request_id, 0)
