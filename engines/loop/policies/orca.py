"""Iteration-level batching with reservation: whole prompts, and room for the longest answer.

The rule of Orca (Yu et al., OSDI 2022): a request joins as soon as its slot and the memory for its
whole length are there, its prompt is computed in one step beside the others' decodes, and nobody
is ever preempted for memory. There is no token budget, so a step is as long as its prompts are.

Starvation bound: every resident gets work in every step. With order fcfs a waiting request is
admitted when those before it have left it a slot and its reservation; nobody passes it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, cast

from engines.api import JsonValue
from engines.loop.plan import Limits, Plan, View
from engines.loop.policies.admission import FullReservation
from engines.loop.policies.draft import NO_BUDGET, Draft
from engines.loop.policies.orders import FIRST_COME, NOTHING_SERVED, Order, Served
from engines.loop.policies.registry import PolicyContext, PolicyEntry
from engines.loop.policies.rules import MAX_NUM_SEQS, ORDER_SETTINGS, Rules, order_from


@dataclass(frozen=True, slots=True)
class OrcaPolicy:
    """Up to `max_num_seqs` residents, each with all the memory it can ever need."""

    max_num_seqs: int
    order: Order = FIRST_COME
    name: str = "orca"

    @property
    def limits(self) -> Limits:
        return Limits(self.max_num_seqs)

    def initial_state(self) -> Served:
        return NOTHING_SERVED

    def plan(self, view: View, state: Served) -> tuple[Plan, Served]:
        rules = Rules(order=self.order, admission=FullReservation())
        draft = Draft.begin(view, rules, state, NO_BUDGET)
        for sequence in view.running:
            draft.run(sequence, sequence.num_remaining)
        if len(view.running) < self.max_num_seqs or self.order.preempts:
            draft.take_in(draft.candidates(), self.max_num_seqs, lambda remaining, _: remaining)
        return draft.plan()


def _make(settings: Mapping[str, JsonValue], context: PolicyContext) -> OrcaPolicy:
    return OrcaPolicy(cast(int, settings["max_num_seqs"]), order_from(settings))


ENTRY: Final = PolicyEntry(
    name="orca",
    summary="iteration-level: whole prompts in one step, memory for the longest answer reserved",
    settings=(MAX_NUM_SEQS, *ORDER_SETTINGS),
    make=_make,
)
