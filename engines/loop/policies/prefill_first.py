"""Prompts first: while prompts can be admitted they run alone and decodes wait.

The rule of vLLM's first scheduler (Kwon et al., SOSP 2023, before chunked prefill): a step computes
either whole prompts, as many as fit the token budget, or one token for each resident. It fills the
batch soonest and freezes running answers for as long as prompts take. Swapped-out requests come
back among the prompts, in order (the original brings them back in a step of decodes). The original
also left 1% of the blocks free when it let a prompt in: `admission=watermark` does, the default
does not.

Starvation bound: a resident waits for as many steps in a row as bring newcomers in: at most
`max_num_seqs` while nobody ends. Prompts that end with their first token leave their slots at once,
so a stream of them can hold a resident up for ever. With more residents than budget they take
turns, as under chunked.
"""

from __future__ import annotations

from collections.abc import Mapping
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
from engines.registry import Setting
from engines.settings import optional_positive_int

_by_last_step = attrgetter("last_scheduled_step", "arrival_index")


@dataclass(frozen=True, slots=True)
class PrefillFirstPolicy:
    """`max_num_batched_tokens` bounds the prompts of a step; none is cut."""

    max_num_seqs: int
    max_num_batched_tokens: int
    rules: Rules = field(default_factory=Rules)
    name: str = "prefill-first"

    @property
    def limits(self) -> Limits:
        """A recomputed request must fit a step whole: P + n - 1 positions."""
        budget = self.max_num_batched_tokens
        because = "max_num_batched_tokens: no prompt is cut"
        return Limits(self.max_num_seqs, budget, budget + 1, because)

    def initial_state(self) -> Served:
        return NOTHING_SERVED

    def plan(self, view: View, state: Served) -> tuple[Plan, Served]:
        draft = Draft.begin(view, self.rules, state, self.max_num_batched_tokens)
        draft.take_in(draft.candidates(), self.max_num_seqs, _whole)
        if not draft.newcomers:
            self._decode(view, draft)
        return draft.plan()

    def _decode(self, view: View, draft: Draft) -> None:
        for sequence in sorted(view.running, key=_by_last_step)[: draft.budget]:
            if sequence.request_id not in draft.preempt and draft.budget > 0:
                draft.run(sequence, sequence.num_remaining)


def _whole(remaining: int, budget: int) -> int:
    return remaining if remaining <= budget else 0


def _make(settings: Mapping[str, JsonValue], context: PolicyContext) -> PrefillFirstPolicy:
    return PrefillFirstPolicy(
        max_num_seqs=cast(int, settings["max_num_seqs"]),
        max_num_batched_tokens=cast(
            int, settings["max_num_batched_tokens"] or context.max_model_len
        ),
        rules=rules_from(settings),
    )


ENTRY: Final = PolicyEntry(
    name="prefill-first",
    summary="whole prompts as soon as they fit, alone; decodes wait meanwhile",
    settings=(
        MAX_NUM_SEQS,
        Setting(
            "max_num_batched_tokens",
            optional_positive_int,
            None,
            "the token budget of a step; auto: the longest request that the model takes",
        ),
        *ORDER_SETTINGS,
        *MEMORY_SETTINGS,
    ),
    make=_make,
)
