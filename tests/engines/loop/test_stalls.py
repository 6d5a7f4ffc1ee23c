"""What a stall is put down to: the seconds of the whole gap, by cause."""

from __future__ import annotations

from itertools import pairwise

import pytest

from engines.api import Request
from engines.loop.executors.cost_model import StepCost
from engines.loop.plan import Limits, Plan
from engines.loop.policies.chunked import ChunkedPolicy
from engines.loop.sequence import Sequence
from engines.loop.stalls import StepSums


class Life:
    """One resident decode and the steps around it, one a call; each call is `seconds` long."""

    def __init__(self) -> None:
        self.steps = StepSums()
        self.sequence = Sequence(Request("a", (1,), 99), 99, arrival_index=0, steps=self.steps)
        self.now_s, self.number = 0.0, 0
        self.works(1.0)

    def works(self, seconds: float, prompt_share: float = 0.0) -> Life:
        """A step with a row of it, which gives a token."""
        start_s = self._step(seconds, prompt_share)
        self.sequence.schedule(self.number, start_s)
        self.sequence.append([7], self.now_s)
        self.sequence.last_scheduled_step = self.number
        return self

    def is_left_out(self, seconds: float, prompt_share: float = 0.0) -> Life:
        self._step(seconds, prompt_share)
        return self

    def is_preempted(self) -> Life:
        self.sequence.preempt(self.now_s, keeps_cache=False)
        return self

    def recomputes(self, seconds: float, prompt_share: float = 1.0) -> Life:
        """A step that brings back a part of what it lost."""
        self.sequence.schedule(self.number + 1, self.now_s)
        self._step(seconds, prompt_share)
        self.sequence.last_scheduled_step = self.number
        return self

    @property
    def cause(self) -> str | None:
        return self.sequence.stats(self.now_s).max_stall_cause

    def _step(self, seconds: float, prompt_share: float) -> float:
        start_s, self.now_s = self.now_s, self.now_s + seconds
        self.number += 1
        self.steps.add(self.number, start_s, self.now_s, prompt_share)
        return start_s


def test_a_first_token_ends_no_gap():
    assert Life().cause is None


@pytest.mark.parametrize(
    ("prompt_share", "cause"), [(0.0, "compute"), (0.25, "compute"), (0.75, "prefill")]
)
def test_a_step_beside_prompts_is_split_by_their_share_of_its_positions(prompt_share, cause):
    assert Life().works(2.0, prompt_share).cause == cause


def test_being_left_out_is_the_token_budgets_doing():
    assert Life().is_left_out(1.0).is_left_out(1.0).works(1.5).cause == "token_budget"


def test_a_step_longer_than_the_wait_before_it_outweighs_the_wait():
    assert Life().is_left_out(1.0).is_left_out(1.0).works(2.5).cause == "compute"


def test_being_left_out_of_steps_with_prompts_is_prefill():
    """However small the prompts' share: without them there would have been no such step."""
    assert Life().is_left_out(2.0, 0.1).works(1.5).cause == "prefill"


def test_steps_that_left_it_out_are_told_apart_one_by_one():
    life = Life().is_left_out(2.0, 1.0).is_left_out(3.0).works(0.5)
    assert life.cause == "token_budget"
    assert life.is_left_out(4.0).is_left_out(5.0, 0.5).works(0.5).cause == "prefill"


def test_prompts_before_its_last_token_count_for_nothing():
    life = Life().is_left_out(3.0, 1.0).works(1.0)
    assert life.is_left_out(5.0).works(1.0).cause == "token_budget"


def test_the_wait_before_a_preemption_counts_too():
    long_wait = Life().is_left_out(5.0).is_preempted().recomputes(1.0).works(1.0)
    assert long_wait.cause == "token_budget"
    beside_prompts = Life().is_left_out(5.0, 1.0).is_preempted().recomputes(1.0).works(1.0)
    assert beside_prompts.cause == "prefill"
    short_wait = Life().is_left_out(1.0, 1.0).is_preempted().recomputes(1.0).works(1.0)
    assert short_wait.cause == "preemption"


def test_all_after_a_preemption_is_its_doing_others_prompts_and_its_own_again():
    life = Life().is_preempted().is_left_out(3.0, 1.0).recomputes(2.0).is_left_out(4.0).works(1.0)
    assert life.cause == "preemption"


def test_a_second_preemption_before_a_token_starts_no_new_count():
    life = Life().is_left_out(3.0).is_preempted().recomputes(2.0).is_preempted()
    assert life.is_left_out(1.5).works(1.0).cause == "preemption"


def test_a_preemption_is_the_cause_of_one_gap_only():
    life = Life().is_preempted().works(4.0)
    assert life.cause == "preemption"
    assert life.works(9.0, 0.9).cause == "prefill"


def test_a_shorter_gap_does_not_change_the_cause_of_the_longest():
    assert Life().works(5.0).works(4.0, 0.9).works(4.5, 0.9).cause == "compute"


def test_equal_seconds_go_to_what_is_not_the_requests_own_work():
    assert Life().works(2.0, 0.5).cause == "prefill"
    assert Life().is_left_out(2.0).works(2.0).cause == "token_budget"


def test_a_preemption_on_the_way_to_the_first_token_is_in_no_gap():
    sequence = Sequence(Request("b", (1, 2), 9), 9, arrival_index=0, steps=StepSums())
    sequence.schedule(0, 0.0)
    sequence.preempt(1.0, keeps_cache=False)
    sequence.schedule(1, 5.0)
    sequence.append([7], 6.0)
    sequence.append([7], 8.0)
    assert sequence.stats(8.0).max_stall_cause == "compute"


def test_a_prompt_of_one_token_costs_what_a_decode_costs(lab, request_of):
    cost = StepCost(per_step_s=0.01, per_token_s=0.01)
    run = lab(ChunkedPolicy(8, 64), cost=cost).play(
        [request_of("d", 1, 9), *(request_of(f"p{i}", 1, 2, scheduled_s=0.1) for i in range(5))]
    )
    assert run.finishes["d"].stats.max_stall_cause == "compute"


class PromptsFirst:
    """Decodes wait while there are prompts: what chunked prefill was invented against."""

    name, limits = "prompts-first", Limits(max_num_seqs=16)

    def initial_state(self) -> None:
        return None

    def plan(self, view, state):
        waiting = list(view.waiting)
        if waiting:
            first = waiting[0].request_id
            return Plan(admit={first: 0}, work={first: waiting[0].num_known}), None
        return Plan(work={s.request_id: s.num_remaining for s in view.running}), None


def test_a_decode_that_waits_while_prompts_run_knows_it(lab, request_of):
    cost = StepCost(per_step_s=0.01, per_token_s=0.001)
    prompts = [request_of(f"p{i}", 100, 2, scheduled_s=0.05) for i in range(4)]
    run = lab(PromptsFirst(), cost=cost).play([request_of("d", 1, 20), *prompts])
    assert max(b - a for a, b in pairwise(run.times()["d"])) > 0.44
    assert run.finishes["d"].stats.max_stall_cause == "prefill"
