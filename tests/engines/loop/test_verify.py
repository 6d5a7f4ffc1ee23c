"""Each rule a plan can break: refused with policy, step and rule, and nothing has changed."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from engines.loop.executors.api import PaddingRow
from engines.loop.plan import Limits, Plan, PlanError

GOOD_STEPS = 2


class Misbehaves:
    """Two good steps with `a` and `b`, `c` left waiting; then `bad(view)`."""

    name = "misbehaves"

    def __init__(self, bad, limits=None):
        self._bad = bad
        self.limits = limits or Limits(max_num_seqs=4, max_num_batched_tokens=20)

    def initial_state(self):
        return 0

    def plan(self, view, state):
        if state == GOOD_STEPS:
            return self._bad(view), state
        admit = {s.request_id: 0 for s in view.waiting if s.request_id != "c"}
        work = {s.request_id: s.num_known for s in view.waiting if s.request_id != "c"}
        work |= {s.request_id: s.num_remaining for s in view.running}
        return Plan(admit=admit, work=work), state + 1


BAD_PLANS = {
    "empty although there is runnable work": lambda v: Plan(),
    "both waits and schedules": lambda v: Plan(work={"a": 1}, wait_until=99.0),
    "not after now": lambda v: Plan(wait_until=v.now_s),
    "none can come before a completion": lambda v: Plan(wait_until=math.inf),
    "preempts 'c', which is not resident": lambda v: Plan(preempt={"c": "recompute"}),
    "both preempted and scheduled": lambda v: Plan(preempt={"a": "recompute"}, work={"a": 1}),
    "known: recompute, swap": lambda v: Plan(preempt={"a": "forget"}, work={"b": 1}),
    "resumes 'a', which was not swapped": lambda v: Plan(resume={"a": 0}, work={"b": 1}),
    "admits 'a', which is not waiting": lambda v: Plan(admit={"a": 0}, work={"a": 1}),
    "both admits and resumes 'c'": lambda v: Plan(admit={"c": 0}, resume={"c": 0}, work={"c": 1}),
    "no room to admit 'c' with 4000": lambda v: Plan(admit={"c": 4000}, work={"c": 1}),
    "schedules 'c', which is not resident": lambda v: Plan(work={"c": 1}),
    "schedules 'nobody'": lambda v: Plan(work={"nobody": 1}),
    "computes 0 of 1": lambda v: Plan(work={"a": 0}),
    "computes 2 of 1": lambda v: Plan(work={"a": 2}),
    "computes 9 of 8": lambda v: Plan(admit={"c": 0}, work={"c": 9}),
    "looks ahead before": lambda v: Plan(admit={"c": 0}, work={"c": 3}, lookahead={"c": 1}),
    "no room for 1 tokens and 90 drafts": lambda v: Plan(work={"a": 1}, lookahead={"a": 90}),
    "not on scheduled rows": lambda v: Plan(work={"a": 1}, lookahead={"b": 1}),
    "padding row has no tokens": lambda v: Plan(work={"a": 1}, padding=[PaddingRow(0, 3)]),
    "21 positions, but the declared budget is 20": lambda v: Plan(
        work={"a": 1}, padding=[PaddingRow(20, 0)]
    ),
    "computes nothing": lambda v: Plan(preempt={"a": "recompute"}),
}


@pytest.mark.parametrize("rule", BAD_PLANS)
def test_a_plan_that_breaks_a_rule_is_refused_and_changes_nothing(lab, request_of, rule):
    requests = [request_of("a", 5, 9), request_of("b", 3, 9), request_of("c", 8, 9)]
    states = []

    def bad(view):
        states.append(state_of(world.cache))
        return BAD_PLANS[rule](view)

    world = lab(Misbehaves(bad), num_blocks=16, block_size=4)
    freed_at = []
    free = world.cache.free
    world.cache.free = lambda s: (freed_at or freed_at.append(state_of(world.cache)), free(s))
    with pytest.raises(PlanError) as error:
        world.play(requests)
    assert rule in str(error.value)
    assert "policy 'misbehaves'" in str(error.value)
    if "wait" not in rule and "empty" not in rule and "none can come" not in rule:
        assert "step 2" in str(error.value)
    assert freed_at == states, "the refused plan has left traces in the memory"
    assert len(world.sink.rows) == GOOD_STEPS
    assert {f.status for f in world.sink.finishes.values()} == {"failed"}


def state_of(cache):
    """Who holds what, and the free blocks in the order in which they would be taken."""
    pool = cache.pool
    free, block = [], pool._next[pool.num_blocks]
    while block != pool.num_blocks:
        free.append(block)
        block = pool._next[block]
    tables = {name: list(table) for name, table in cache.tables.items()}
    return tables, pool.num_free, list(pool._count), free


def test_more_residents_than_declared_are_refused(lab, request_of):
    requests = [request_of("a", 5, 9), request_of("b", 3, 9), request_of("c", 8, 9)]
    bad = Misbehaves(lambda v: Plan(admit={"c": 0}, work={"c": 1}), Limits(max_num_seqs=2))
    with pytest.raises(PlanError, match="3 residents, but max_num_seqs is 2"):
        lab(bad).play(requests)


class PreemptsForEver(Misbehaves):
    """Preempts `a` after each admission, before it has got anywhere."""

    def plan(self, view, state):
        running = {s.request_id: s for s in view.running}
        if "a" in running and state:
            return Plan(preempt={"a": "recompute"}, work={"b": 1}), state
        admit = {s.request_id: 0 for s in view.waiting}
        trial = view.trial()
        for s in view.waiting:
            trial.admit(s)
        work = {s.request_id: 1 for s in [*view.running, *view.waiting]}
        return Plan(admit=admit, work=work), state + 1


def test_a_loop_of_admission_and_preemption_is_refused(lab, request_of):
    with pytest.raises(PlanError, match="'a' has not advanced since its last preemption"):
        lab(PreemptsForEver(None)).play([request_of("a", 5, 9), request_of("b", 3, 40)])


def test_preempting_one_that_shares_all_its_blocks_is_refused(lab, request_of):
    """`a` has computed the first block of its prompt; `b` begins alike and came in on it."""

    class Nothing(Misbehaves):
        def plan(self, view, state):
            if len(view.running) == 2:
                return Plan(preempt={"a": "recompute"}, work={"b": 1}), state
            name = "b" if view.running else "a"
            return Plan(admit={name: 0}, work={name: 1 if view.running else 4}), state

    world = lab(Nothing(None), block_size=4, prefix_caching=True)
    with pytest.raises(PlanError, match="preempting 'a' frees no block"):
        world.play([request_of("a", [1, 2, 3, 4, 5], 9), request_of("b", [1, 2, 3, 4, 5], 9)])


class PreemptsBeforeAnyWork(Misbehaves):
    """Admits `b` on the prefix that `a` computed and puts it out before it has computed."""

    def plan(self, view, state):
        running = {s.request_id: s for s in view.running}
        if "b" in running:
            return Plan(preempt={"b": "recompute"}, work={"a": 1}), state
        if running:
            return Plan(admit={"b": 8}, work={"a": 1}), state
        return Plan(admit={"a": 0}, work={"a": 5}), state


def test_preempting_one_that_has_computed_nothing_is_refused(lab, request_of):
    """Else its prefix hit would count twice: once for each time that it comes in."""
    world = lab(PreemptsBeforeAnyWork(None), block_size=4, prefix_caching=True)
    with pytest.raises(PlanError, match="'b' has not advanced since it came"):
        world.play([request_of("a", [1, 2, 3, 4, 5], 9), request_of("b", [1, 2, 3, 4, 9], 9)])


def test_a_policy_that_raises_leaves_the_memory_as_it_was(lab, request_of):
    def bad(view):
        trial = view.trial()
        trial.grow(view.running[0], 50)
        raise ZeroDivisionError("a bug in a policy")

    world = lab(Misbehaves(bad), num_blocks=40, block_size=4)
    with pytest.raises(ZeroDivisionError):
        world.play([request_of("a", 5, 9), request_of("b", 3, 9)])
    assert world.cache.free_blocks == 40


def test_plans_are_values():
    plan = Plan(work={"a": 1})
    assert replace(plan, work={"a": 1}) == plan
    with pytest.raises(AttributeError):
        plan.work = {}


class AdmitsAhead(Misbehaves):
    """Admits everybody in its own order, works for one alone, then for all in turn."""

    ORDER = ("d", "a", "g", "c", "f", "b", "e")

    def __init__(self):
        super().__init__(None, Limits(max_num_seqs=8))
        self.tables = {}

    def plan(self, view, state):
        if view.running:
            if not self.tables:
                self.tables = {s.request_id: list(self.table(s.request_id)) for s in view.running}
            return Plan(work={s.request_id: s.num_remaining for s in view.running}), state
        return Plan(admit=dict.fromkeys(self.ORDER, 8), work={"g": 5}), state


def test_admissions_without_work_are_carried_out_in_the_plans_order(lab, request_of):
    """Who takes blocks first takes lower ones; those with work are admitted as it is done."""
    policy = AdmitsAhead()
    world = lab(policy, num_blocks=20, block_size=4)
    policy.table = world.cache.table
    world.play([request_of(name, 5, 3) for name in "abcdefg"])
    by_block = sorted(policy.tables, key=lambda name: policy.tables[name][0])
    assert by_block == ["g", "d", "a", "c", "f", "b", "e"]
