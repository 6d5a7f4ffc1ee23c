"""Whether a plan leaves idle what its own policy would use: slots, memory, budget, better ranks.

The first that was left outside is tried on what the plan leaves, by the policy's own admission.
"""

from __future__ import annotations

import math

from engines.loop.plan import Plan
from engines.loop.policies.admission import FullReservation
from engines.loop.policies.chunked import ChunkedPolicy
from engines.loop.policies.orca import OrcaPolicy
from engines.loop.policies.prefill_first import PrefillFirstPolicy


def order_of(policy):
    return policy.rules.order if hasattr(policy, "rules") else policy.order


def admission_of(policy):
    return policy.rules.admission if hasattr(policy, "rules") else FullReservation()


def share_of(policy, remaining, budget):
    """How many of its remaining tokens the policy would compute now; 0: it waits."""
    if isinstance(policy, ChunkedPolicy) and policy.enable_chunked_prefill:
        return min(remaining, budget, policy.long_prefill_token_threshold or math.inf)
    return remaining if remaining <= budget else 0


def check_nothing_is_idle(policy, view, plan, outside, served):
    """`outside` are those whom the plan leaves outside, the best first."""
    if not outside:
        return
    head, budget = outside[0], policy.limits.max_num_batched_tokens or math.inf
    came = bool(plan.admit or plan.resume)
    if isinstance(policy, PrefillFirstPolicy) and not came:
        plan = Plan()  # who comes in is decided before anybody decodes
    elif plan.preempt or (view.running and not _joins_at_any_step(policy)):
        return
    assert not would_fit(policy, view, plan, head, budget), "room was left unused"
    if order_of(policy).preempts and _joins_at_any_step(policy) and not came:
        _check_nobody_worse_is_in_its_place(policy, view, plan, head, budget, served)


def _joins_at_any_step(policy):
    return isinstance(policy, ChunkedPolicy | OrcaPolicy | PrefillFirstPolicy)


def _check_nobody_worse_is_in_its_place(policy, view, plan, head, budget, served):
    """All who are worse than the head and can be put out together would not make room for it."""
    order = order_of(policy)
    trial = view.trial()
    worse = {
        s.request_id
        for s in view.running
        if s.has_advanced
        and trial.frees(s)
        and order.rank(s, served)[0] > order.rank(head, served)[0]
    }
    if not worse:
        return
    before = {
        s.request_id: plan.work[s.request_id]
        for s in view.running
        if s.request_id in plan.work and _goes_before(policy, view, s, head, served)
    }
    work = {name: n for name, n in before.items() if name not in worse}
    if len(view.running) < policy.limits.max_num_seqs:  # nobody leaves for the sake of tokens
        budget -= sum(before.values()) - sum(work.values())
    preempt = dict.fromkeys(worse, "recompute")
    assert not would_fit(policy, view, Plan(preempt=preempt, work=work), head, budget), (
        "a worse one runs"
    )


def _goes_before(policy, view, sequence, head, served):
    """Whether a resident was given its work before the head was looked at."""
    if not isinstance(policy, ChunkedPolicy):
        return True
    is_scarce = min(len(view.running) + 1, policy.max_num_seqs) > policy.max_num_batched_tokens
    order = order_of(policy)
    if not is_scarce and sequence.num_remaining == 1:
        return True
    return order.rank(sequence, served) < order.rank(head, served)


def would_fit(policy, view, plan, head, budget):
    """Whether `head` could come in beside `plan`, in a slot, in memory and with work to do."""
    trial = view.trial()
    by_id = {s.request_id: s for s in [*view.running, *view.swapped, *view.waiting]}
    for name in plan.preempt:
        trial.release(by_id[name])
    for name, n in plan.work.items():
        if name in plan.admit:
            assert trial.admit(by_id[name], plan.admit[name]) is not None
        elif name in plan.resume:
            assert trial.resume(by_id[name], plan.resume[name])
        assert trial.grow(by_id[name], n)
    newcomers = [by_id[name] for name in [*plan.admit, *plan.resume]]
    residents = [*newcomers, *(s for s in view.running if s.request_id not in plan.preempt)]
    left = budget - sum(plan.work.values())
    if len(residents) >= policy.limits.max_num_seqs or left <= 0:
        return False
    admission = admission_of(policy)
    if any(s is head for s in view.swapped):
        has_room = trial.resume(head, admission.reserve(head))
        return has_room and share_of(policy, head.num_remaining, left) > 0
    hit = admission.admit(head, residents, trial)
    return hit is not None and share_of(policy, head.num_known - hit, left) > 0
