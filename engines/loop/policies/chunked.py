"""Continuous batching with chunked prefill: decodes first, then running prompts, then new ones.

The order of Sarathi-Serve (Agrawal et al., OSDI 2024) and of vLLM's current scheduler: one token
budget a step, computed chases known tokens, a victim is preempted when memory runs out. Requests
wait behind the first that does not fit (head-of-line blocking). Under an order that preempts
(priority, srpt) prompts, new and running, are served by rank, and so are decodes that the budget
does not cover.

Where `max_num_seqs` exceeds the budget and somebody waits while residents use all of it, one token
of each step is kept for the newcomer, so residents may come to outnumber the tokens. Then all take
turns, a token each, those first that have waited longest.

Starvation bound: with `max_num_seqs` within the budget a decode gets a token in every step. Else a
decode that is not preempted gets one at least every ceil(r / (b - 1)) steps, r residents with b > 1
tokens of budget. A running prompt waits for the running prompts before it. Under an order that
preempts there is no bound for the lower ranks. A preempted one advances before it can be preempted
again. A waiting one is bounded by its order.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Final, cast

from engines.api import JsonValue
from engines.loop.plan import Limits, Plan, View
from engines.loop.policies.draft import Draft
from engines.loop.policies.orders import NOTHING_SERVED, Served
from engines.loop.policies.registry import PolicyContext, PolicyEntry
from engines.loop.policies.rules import (
    MAX_NUM_SEQS,
    MEMORY_SETTINGS,
    ORDER_SETTINGS,
    Rules,
    rules_from,
)
from engines.loop.sequence import SequenceView
from engines.registry import Setting
from engines.settings import boolean, natural, optional_positive_int

_by_last_step = attrgetter("last_scheduled_step", "arrival_index")
_TOKEN_BUDGETS: Final = {"cpu": 256, "cuda": 2048}  # about a step's worth of compute


@dataclass(frozen=True, slots=True)
class ChunkedPolicy:
    """`long_prefill_token_threshold` bounds one prompt's share of a step; 0 means no bound."""

    max_num_seqs: int
    max_num_batched_tokens: int
    long_prefill_token_threshold: int = 0
    enable_chunked_prefill: bool = True
    rules: Rules = field(default_factory=Rules)
    name: str = "chunked"

    @property
    def limits(self) -> Limits:
        """Without chunks a recomputed request must fit a step whole: P + n - 1 positions."""
        whole = None if self.enable_chunked_prefill else self.max_num_batched_tokens + 1
        because = "max_num_batched_tokens with enable_chunked_prefill=false"
        return Limits(self.max_num_seqs, self.max_num_batched_tokens, whole, because)

    def initial_state(self) -> Served:
        return NOTHING_SERVED

    def plan(self, view: View, state: Served) -> tuple[Plan, Served]:
        draft = Draft.begin(view, self.rules, state, self.max_num_batched_tokens)
        kept = self._kept_for_the_door(view)
        if self.rules.order.preempts:
            self._by_rank(view, draft)
        elif len(view.running) + kept > draft.budget:
            self._by_turns(view, draft, kept)
        else:
            self._decodes_first(view, draft)
        return draft.plan()

    def _kept_for_the_door(self, view: View) -> int:
        """A token that residents leave to a newcomer when they alone would use all up."""
        is_short = 1 < self.max_num_batched_tokens <= len(view.running) < self.max_num_seqs
        return 1 if is_short and (view.num_waiting or view.swapped) else 0

    def _decodes_first(self, view: View, draft: Draft) -> None:
        decodes, prefills = _split(view.running)
        draft.run_decodes(decodes)
        for sequence in prefills:
            self._run(sequence, draft)
        if len(view.running) < self.max_num_seqs:
            draft.take_in(draft.candidates(), self.max_num_seqs, self._share)

    def _by_turns(self, view: View, draft: Draft, kept: int) -> None:
        residents = sorted(view.running, key=_by_last_step)
        draft.budget -= kept
        for sequence in residents:
            self._run(sequence, draft, most=1)
        draft.budget += kept
        draft.take_in(draft.candidates(), self.max_num_seqs, self._share)
        if not draft.newcomers:
            for sequence in residents:
                self._run(sequence, draft)

    def _by_rank(self, view: View, draft: Draft) -> None:
        """A candidate that outranks a resident goes before it; decodes go first if all can."""
        order, served = self.rules.order, draft.served
        at_the_door = 1 if view.num_waiting or view.swapped else 0
        is_scarce = min(len(view.running) + at_the_door, self.max_num_seqs) > draft.budget
        decodes, residents = ([], list(view.running)) if is_scarce else _split(view.running)
        draft.run_decodes(decodes)
        residents.sort(key=lambda sequence: order.rank(sequence, served))
        swapped = {sequence.request_id for sequence in view.swapped}
        candidates = draft.candidates()
        head = next(candidates, None)
        for sequence in [*residents, None]:
            while head is not None and (
                sequence is None or order.rank(head, served) < order.rank(sequence, served)
            ):
                came_in = draft.let_in(head, self.max_num_seqs, self._share, swapped)
                head = next(candidates, None) if came_in else None
            if sequence is not None:
                self._run(sequence, draft)

    def _run(self, sequence: SequenceView, draft: Draft, most: int | None = None) -> None:
        """Gives a resident its share, or up to `most` tokens where prompts may be cut."""
        name = sequence.request_id
        if draft.budget <= 0 or name in draft.preempt:
            return
        before = draft.work.get(name, 0)
        n = self._share(sequence.num_remaining, draft.budget + before)
        if most is not None and self.enable_chunked_prefill:
            n = min(n, most)
        if n > before:
            draft.run(sequence, n)

    def _share(self, remaining: int, budget: int) -> int:
        """How many of its remaining tokens a request may compute now; 0: it has to wait."""
        if not self.enable_chunked_prefill:
            return remaining if remaining <= budget else 0
        if self.long_prefill_token_threshold:
            budget = min(budget, self.long_prefill_token_threshold)
        return min(remaining, budget)


def _split(
    running: Iterable[SequenceView],
) -> tuple[list[SequenceView], list[SequenceView]]:
    """Decodes, and those with more than one token to compute."""
    decodes: list[SequenceView] = []
    prefills: list[SequenceView] = []
    for sequence in running:
        (decodes if sequence.num_remaining == 1 else prefills).append(sequence)
    return decodes, prefills


def _make(settings: Mapping[str, JsonValue], context: PolicyContext) -> ChunkedPolicy:
    budget = settings["max_num_batched_tokens"] or _TOKEN_BUDGETS.get(context.device, 256)
    return ChunkedPolicy(
        max_num_seqs=cast(int, settings["max_num_seqs"]),
        max_num_batched_tokens=cast(int, budget),
        long_prefill_token_threshold=cast(int, settings["long_prefill_token_threshold"]),
        enable_chunked_prefill=bool(settings["enable_chunked_prefill"]),
        rules=rules_from(settings),
    )


ENTRY: Final = PolicyEntry(
    name="chunked",
    summary="decodes first, then running prompts, then new ones, in one token budget",
    settings=(
        MAX_NUM_SEQS,
        Setting(
            "max_num_batched_tokens",
            optional_positive_int,
            None,
            "the token budget of a step; auto: 256 on a CPU, 2048 on a GPU",
        ),
        Setting(
            "enable_chunked_prefill",
            boolean,
            True,
            "let a prompt run in pieces over several steps",
        ),
        Setting(
            "long_prefill_token_threshold",
            natural,
            0,
            "the most prompt tokens of one request in a step; 0: no such bound",
        ),
        *ORDER_SETTINGS,
        *MEMORY_SETTINGS,
    ),
    make=_make,
)
