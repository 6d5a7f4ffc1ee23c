"""Continuous batching with chunked prefill: decodes first, then running prompts, then new ones.

The order of Sarathi-Serve (Agrawal et al., OSDI 2024) and of vLLM's current scheduler: one token
budget a step, computed chases known tokens, the newest request is preempted and recomputed when
memory runs out. New requests wait behind the first that does not fit (head-of-line blocking).

Where `max_num_seqs` exceeds the budget and somebody waits while residents use all of it, one token
of each step is kept for the newcomer, so residents may come to outnumber the tokens. Then all take
turns, a token each, those first that have waited longest.

Starvation bound: with `max_num_seqs` within the budget a decode gets a token in every step. Else a
resident that is not preempted gets work at least every ceil(r / (b - 1)) steps, r residents with
b > 1 tokens of budget. A preempted one advances before it can be preempted again.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from operator import attrgetter

from engines.api import RequestId
from engines.loop.kv.api import Trial
from engines.loop.plan import Limits, Plan, PreemptMode, View
from engines.loop.sequence import SequenceView

_by_last_step = attrgetter("last_scheduled_step", "arrival_index")


@dataclass(slots=True)
class _Draft:
    """A plan in the making; `budget` is what is left of the step's tokens."""

    trial: Trial
    budget: int
    work: dict[RequestId, int]
    preempt: dict[RequestId, PreemptMode]


@dataclass(frozen=True, slots=True)
class ChunkedPolicy:
    """`long_prefill_token_threshold` bounds one prompt's share of a step; 0 means no bound."""

    max_num_seqs: int
    max_num_batched_tokens: int
    long_prefill_token_threshold: int = 0
    enable_chunked_prefill: bool = True
    name: str = "chunked"

    @property
    def limits(self) -> Limits:
        """Without chunks a recomputed request must fit a step whole: P + n - 1 positions."""
        whole = None if self.enable_chunked_prefill else self.max_num_batched_tokens + 1
        return Limits(self.max_num_seqs, self.max_num_batched_tokens, whole)

    def initial_state(self) -> None:
        return None

    def plan(self, view: View, state: None) -> tuple[Plan, None]:
        draft = _Draft(view.trial(), self.max_num_batched_tokens, {}, {})
        kept = self._kept_for_the_door(view, draft.budget)
        draft.budget -= kept
        take_turns = len(view.running) > draft.budget
        order = _by_turns(view.running) if take_turns else _decodes_first(view.running)
        self._run(order, view, draft, most=1 if take_turns else None)
        draft.budget += kept
        admit = {} if draft.preempt else self._admit(view, draft)
        if take_turns and not admit:
            self._run(order, view, draft)
        return Plan(preempt=draft.preempt, admit=admit, work=draft.work), None

    def _kept_for_the_door(self, view: View, budget: int) -> int:
        """A token that residents leave to a newcomer when they alone would use all up."""
        residents = len(view.running)
        is_short = 1 < budget <= residents < self.max_num_seqs
        return 1 if is_short and view.num_waiting else 0

    def _run(
        self,
        residents: Iterable[SequenceView],
        view: View,
        draft: _Draft,
        most: int | None = None,
    ) -> None:
        """Gives each its share, or up to `most` tokens where prompts may be cut."""
        for sequence in residents:
            if draft.budget == 0:
                return
            name = sequence.request_id
            if name in draft.preempt:
                continue
            before = draft.work.get(name, 0)
            n = self._share(sequence.num_remaining, draft.budget + before)
            if most is not None and self.enable_chunked_prefill:
                n = min(n, most)
            if n > before and _make_room(sequence, n, view, draft):
                draft.work[name] = n
                draft.budget -= n - before

    def _admit(self, view: View, draft: _Draft) -> dict[RequestId, int]:
        admit: dict[RequestId, int] = {}
        free_slots = self.max_num_seqs - len(view.running)
        if free_slots <= 0 or draft.budget == 0 or not view.num_waiting:
            return admit
        for sequence in view.waiting:
            if len(admit) == free_slots or draft.budget == 0:
                break
            if not self._share(sequence.num_known, draft.budget):
                break
            hit = draft.trial.admit(sequence, reserve=sequence.num_known)
            if hit is None:
                break
            n = self._share(sequence.num_known - hit, draft.budget)
            admit[sequence.request_id] = sequence.num_known
            draft.work[sequence.request_id] = n
            draft.budget -= n
        return admit

    def _share(self, remaining: int, budget: int) -> int:
        """How many of its remaining tokens a request may compute now; 0: it has to wait."""
        if not self.enable_chunked_prefill:
            return remaining if remaining <= budget else 0
        if self.long_prefill_token_threshold:
            budget = min(budget, self.long_prefill_token_threshold)
        return min(remaining, budget)


def _decodes_first(running: Iterable[SequenceView]) -> list[SequenceView]:
    decodes: list[SequenceView] = []
    prefills: list[SequenceView] = []
    for sequence in running:
        (decodes if sequence.num_remaining == 1 else prefills).append(sequence)
    return decodes + prefills


def _by_turns(running: Iterable[SequenceView]) -> list[SequenceView]:
    return sorted(running, key=_by_last_step)


def _make_room(sequence: SequenceView, n: int, view: View, draft: _Draft) -> bool:
    """Room for `n` tokens, if need be by preempting newer requests, at last the request itself."""
    while not draft.trial.grow(sequence, n):
        victim = _newest(view, draft)
        if victim is None:
            return False
        draft.trial.release(victim)
        draft.preempt[victim.request_id] = "recompute"
        draft.budget += draft.work.pop(victim.request_id, 0)
        if victim is sequence:
            return False
    return True


def _newest(view: View, draft: _Draft) -> SequenceView | None:
    """The newest resident that may be preempted: one that has advanced since the last time."""
    for sequence in reversed(view.running):
        if sequence.request_id not in draft.preempt and sequence.has_advanced:
            return sequence
    return None
