"""What counts against a policy's declared limits, beside plain work."""

from __future__ import annotations

import pytest

from engines.loop.plan import Limits, Plan, PlanError


class Scripted:
    """Makes the plans of a list, one after the other."""

    name = "scripted"

    def __init__(self, limits, *plans):
        self.limits, self.plans = limits, list(plans)

    def initial_state(self):
        return None

    def plan(self, view, state):
        return self.plans.pop(0), None


START = Plan(admit={"a": 0}, work={"a": 5})


def test_drafts_are_positions_of_the_budget(lab, request_of):
    policy = Scripted(
        Limits(max_num_seqs=2, max_num_batched_tokens=5),
        START,
        Plan(work={"a": 1}, lookahead={"a": 5}),
    )
    with pytest.raises(PlanError, match="6 positions, but the declared budget is 5"):
        lab(policy).play([request_of("a", 5, 9)])


def test_who_comes_back_from_the_host_is_a_resident_again(lab, request_of):
    policy = Scripted(
        Limits(max_num_seqs=1),
        START,
        Plan(preempt={"a": "swap"}, admit={"b": 0}, work={"b": 3}),
        Plan(resume={"a": 0}, work={"b": 1}),
    )
    with pytest.raises(PlanError, match="2 residents, but max_num_seqs is 1"):
        lab(policy).play([request_of("a", 5, 9), request_of("b", 3, 9)])
