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
                grow = self.trial.grow

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
        """One candidate; worse-ranked residents may have to leave for it.

        Who leaves for want of a slot or of memory leaves its tokens too, but nobody leaves where
        tokens alone are wanting.
        """
        if self.is_short:
            return False
        comes_back = sequence.request_id in swapped
        enter = self._resume if comes_back else self._admit

        def has_share() -> bool:
            return self.budget > 0 and self._has_share(sequence, share, comes_back=comes_back)

        def try_to_enter() -> bool:
            return self.num_residents < slots and has_share() and enter(sequence, share)

        if self.num_residents < slots and not has_share():
            return False
        if not try_to_enter() and not self._displace(sequence, try_to_enter):
            return False
        self.newcomers.append(sequence)
        return True

    def _has_share(
        self, sequence: SequenceView, share: Callable[[int, int], int], *, comes_back: bool
    ) -> bool:
        """Whether the budget has work for it; of a prompt only what the cache lacks is computed."""
        if comes_back:
            return share(sequence.num_remaining, self.budget) > 0
        known = sequence.num_known
        if share(known, self.budget):
            return True
        hit = self.trial.hit(sequence)
        return hit > 0 and share(known - hit, self.budget) > 0

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

    def _displace(self, sequence: SequenceView, try_to_enter: Callable[[], bool]) -> bool:
        """Puts out those whom the order ranks behind `sequence`, the last first, until it enters.

        Nobody is put out if all of them together would not make room for it. Only for the first to
        come in: the loop preempts before it lets anybody in, and memory that another got before the
        preemption might be elsewhere after it.
        """
        if not self.rules.order.preempts or self.newcomers:
            return False
        worse = self._ranked_behind(sequence)
        if not worse:
            return False
        work, preempt, budget = dict(self.work), dict(self.preempt), self.budget
        for victim in worse:
            self._put_out(victim)
            if try_to_enter():
                return True
        self.work, self.preempt, self.budget = work, preempt, budget
        self._try_again()
        return False

    def _ranked_behind(self, sequence: SequenceView) -> list[SequenceView]:
        """Those who can be put out and are strictly worse than `sequence`, the last first."""
        order, served = self.rules.order, self.served
        rank, _ = order.rank(sequence, served)
        worse = [s for s in self._preemptible() if order.rank(s, served)[0] > rank]
        return sorted(worse, key=lambda s: order.rank(s, served), reverse=True)

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
        self.preempt[victim.request_id] = self.rules.preemption
        self.budget += self.work.pop(victim.request_id, 0)
        if self.trial.leaves_a_trace(victim):
            self._try_again()
        else:
            self.trial.release(victim)

    def _try_again(self) -> None:
        """All that is planned on a fresh trial, as the loop will carry it out."""
        self.trial = self.view.trial()
        running = {sequence.request_id: sequence for sequence in self.view.running}
        newcomers = {sequence.request_id: sequence for sequence in self.newcomers}
        for name in self.preempt:
            self.trial.release(running[name])
        for name in list(self.work):
            sequence = newcomers.get(name)
            if sequence is not None:
                self._enter_again(sequence)
            has_room = self.trial.grow(sequence or running[name], self.work[name])
            assert has_room, "what had room before a victim left has room after it"

    def _enter_again(self, newcomer: SequenceView) -> None:
        """It may find more of its prefix in the cache than before a victim left, never less."""
        name = newcomer.request_id
        if name in self.resume:
            self.trial.resume(newcomer, self.resume[name])
            return
        hit = self.trial.admit(newcomer, self.admit[name])
        assert hit is not None, "who had room before a victim left has room after it"
        spared = max(0, self.work[name] - (newcomer.num_known - hit))
        self.work[name] -= spared
        self.budget += spared
