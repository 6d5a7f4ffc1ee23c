"""What a request is told of its own time when it is preempted on the way."""

from __future__ import annotations

from itertools import pairwise

import pytest

from engines.loop.executors.cost_model import StepCost
from engines.loop.plan import Limits, Plan


class Scripted:
    """Case N4 at a tenth of a second a step: `b` has its first token at 0.2 s, is preempted at
    0.5 s for `a`, and comes back at 2.0 s."""

    name, limits = "scripted", Limits(max_num_seqs=2)

    def initial_state(self) -> int:
        return 0

    def plan(self, view, step):
        if step == 0:
            return Plan(admit={"b": 0}, work={"b": 5}), 1
        if step == 1:
            return Plan(work={"b": 5}), 2
        if step == 5:
            return Plan(preempt={"b": "recompute"}, admit={"a": 0}, work={"a": 1}), 6
        if step == 20:
            return Plan(admit={"b": 0}, work={"b": 14}), 21
        (only,) = view.running
        return Plan(work={only.request_id: 1}), step + 1


@pytest.fixture
def run(lab, request_of):
    world = lab(Scripted(), cost=StepCost(per_step_s=0.1))
    return world.play([request_of("b", 10, 14), request_of("a", 1, 15)])


def test_a_preempted_request_has_one_first_token_and_its_whole_wait(run):
    times = run.times()["b"]
    assert times[0] == pytest.approx(0.2)
    assert times[-1] == pytest.approx(3.0)
    assert max(b - a for a, b in pairwise(times)) == pytest.approx(2.1 - 0.5)
    stats = run.finishes["b"].stats
    assert (stats.num_preemptions, stats.max_stall_cause) == (1, "preemption")
    assert stats.preempted_from_s == (pytest.approx(0.5),)
    assert stats.preempted_until_s == (pytest.approx(2.0),)


def test_its_phases_add_up_and_each_step_is_counted_once(run):
    stats = run.finishes["b"].stats
    phases = (stats.queue_s, stats.prefill_s, stats.decode_s, stats.preempted_s)
    assert phases == pytest.approx((0.0, 0.2, 0.3 + 1.0, 1.5))
    assert (stats.num_prefill_steps, stats.num_steps) == (2, 5 + 10)


def test_its_prompt_is_counted_once_and_what_is_recomputed_apart(run):
    stats = run.finishes["b"].stats
    assert (stats.first_time_prompt, stats.first_time_output) == (10, 13)
    assert sum(row.recomputed for row in run.rows) == 13
    assert sum(row.prompt for row in run.rows) == 10 + 1
