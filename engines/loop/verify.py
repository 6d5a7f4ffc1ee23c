"""Holds a plan to the rules, by carrying it out on a trial of the memory.

Every rule is checked on the plan as a whole before anything counts: a plan is legal and its trial
is what gets committed, or `PlanError` names the policy, the step and the rule, and nothing changed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NoReturn

from engines.api import Blocked, Due, End, RequestId
from engines.loop.kv.api import KVCache, Trial
from engines.loop.plan import Limits, Plan, PlanError
from engines.loop.sequence import Sequence


@dataclass(frozen=True, slots=True)
class Residents:
    """Who is where, by request id. The loop's own dictionaries, only read here."""

    running: dict[RequestId, Sequence]
    waiting: dict[RequestId, Sequence]
    swapped: dict[RequestId, Sequence]


@dataclass(frozen=True, slots=True)
class Verified:
    """A legal plan: its open trial, the prefix hits, and the blocks that swaps copy from."""

    trial: Trial
    hits: dict[RequestId, int]
    swapped_out: dict[RequestId, list[int]]


class Verifier:
    """Checks the plans of one policy against its own declared limits."""

    def __init__(self, policy: str, limits: Limits, cache: KVCache) -> None:
        self._policy = policy
        self._limits = limits
        self._cache = cache

    def check_wait(self, plan: Plan, step: int, now_s: float, due: Due) -> None:
        """A plan that makes no step. Raises `PlanError`."""
        until_s = plan.wait_until
        if until_s is None:
            self._refuse(step, "it is empty although there is runnable work")
        if not plan.is_empty:
            self._refuse(step, "it both waits and schedules")
        if not until_s > now_s:
            self._refuse(step, f"it waits until {until_s} s, which is not after now ({now_s} s)")
        if math.isinf(until_s) and isinstance(due, Blocked | End):
            self._refuse(step, "it waits for an arrival, but none can come before a completion")

    def check(self, plan: Plan, step: int, residents: Residents) -> Verified:
        """Carries the plan out on a trial, which is left open. Raises `PlanError`."""
        if twice := plan.admit.keys() & plan.resume.keys():
            self._refuse(step, f"it both admits and resumes {min(twice)!r}")
        trial = self._cache.trial()
        try:
            swapped_out = self._preempt(plan, step, residents, trial)
            hits = self._work(plan, step, residents, trial)
            for name in plan.resume:
                if name not in hits:
                    hits[name] = self._resume(name, plan, step, residents, trial)
            for name in plan.admit:
                if name not in hits:
                    hits[name] = self._admit(name, plan, step, residents, trial)
            self._count(plan, step, residents)
        except BaseException:
            trial.discard()
            raise
        return Verified(trial, hits, swapped_out)

    def _preempt(
        self, plan: Plan, step: int, residents: Residents, trial: Trial
    ) -> dict[RequestId, list[int]]:
        swapped_out: dict[RequestId, list[int]] = {}
        for name, mode in plan.preempt.items():
            sequence = residents.running.get(name)
            if sequence is None:
                self._refuse(step, f"it preempts {name!r}, which is not resident")
            if name in plan.work or name in plan.admit or name in plan.resume:
                self._refuse(step, f"{name!r} is both preempted and scheduled")
            if not sequence.has_advanced:
                since = "its last preemption" if sequence.num_preemptions else "it came"
                self._refuse(step, f"{name!r} has not advanced since {since}")
            if mode == "swap":
                held = self._cache.blocks_for(sequence.num_computed)
                swapped_out[name] = list(self._cache.table(name)[:held])
            elif mode != "recompute":
                self._refuse(step, f"{name!r} is preempted by {mode!r}; known: recompute, swap")
            if trial.release(sequence) < 1:
                self._refuse(step, f"preempting {name!r} frees no block")
        return swapped_out

    def _resume(
        self, name: RequestId, plan: Plan, step: int, residents: Residents, trial: Trial
    ) -> int:
        """Returns how many of its tokens are computed."""
        sequence, reserve = residents.swapped.get(name), plan.resume[name]
        if sequence is None:
            self._refuse(step, f"it resumes {name!r}, which was not swapped out")
        if not trial.resume(sequence, reserve):
            self._refuse(step, f"no room to resume {name!r} with {reserve} positions; {trial.room}")
        return sequence.num_computed

    def _admit(
        self, name: RequestId, plan: Plan, step: int, residents: Residents, trial: Trial
    ) -> int:
        """Returns how many of its tokens the cache has already."""
        sequence, reserve = residents.waiting.get(name), plan.admit[name]
        if sequence is None:
            self._refuse(step, f"it admits {name!r}, which is not waiting")
        hit = trial.admit(sequence, reserve)
        if hit is None:
            self._refuse(step, f"no room to admit {name!r} with {reserve} positions; {trial.room}")
        return hit

    def _work(
        self, plan: Plan, step: int, residents: Residents, trial: Trial
    ) -> dict[RequestId, int]:
        """Brings in and grows in the plan's order; returns what newcomers have computed."""
        running, lookahead, grow = residents.running, plan.lookahead, trial.grow
        computed: dict[RequestId, int] = {}
        for name, n in plan.work.items():
            sequence = running.get(name)
            if sequence is not None:
                remaining = len(sequence.tokens) - sequence.num_computed
            else:
                sequence = self._bring_in(name, plan, step, residents, trial, computed)
                remaining = sequence.num_known - computed[name]
            if not 1 <= n <= remaining:
                self._refuse(step, f"it computes {n} of {remaining} remaining tokens of {name!r}")
            drafts = lookahead.get(name, 0) if lookahead else 0
            if drafts and n != remaining:
                self._refuse(step, f"{name!r} looks ahead before its known tokens are computed")
            if not grow(sequence, n, drafts):
                self._refuse(
                    step, f"no room for {n} tokens and {drafts} drafts of {name!r}; {trial.room}"
                )
        return computed

    def _bring_in(
        self,
        name: RequestId,
        plan: Plan,
        step: int,
        residents: Residents,
        trial: Trial,
        computed: dict[RequestId, int],
    ) -> Sequence:
        """Admits or resumes whoever has work and is not resident yet."""
        if name in plan.admit:
            computed[name] = self._admit(name, plan, step, residents, trial)
            return residents.waiting[name]
        if name in plan.resume:
            computed[name] = self._resume(name, plan, step, residents, trial)
            return residents.swapped[name]
        self._refuse(step, f"it schedules {name!r}, which is not resident")

    def _count(self, plan: Plan, step: int, residents: Residents) -> None:
        stray = plan.lookahead.keys() - plan.work.keys()
        if stray or any(drafts < 0 for drafts in plan.lookahead.values()):
            self._refuse(step, f"its lookahead {dict(plan.lookahead)} is not on scheduled rows")
        if any(row.num_tokens < 1 or row.context < 0 for row in plan.padding):
            self._refuse(step, "a padding row has no tokens or a negative context")
        resident = len(residents.running) - len(plan.preempt) + len(plan.admit) + len(plan.resume)
        most = self._limits.max_num_seqs
        if resident > most:
            self._refuse(step, f"{resident} residents, but max_num_seqs is {most}")
        budget = self._limits.max_num_batched_tokens
        positions = (
            sum(plan.work.values())
            + sum(plan.lookahead.values())
            + sum(row.num_tokens for row in plan.padding)
        )
        if budget is not None and positions > budget:
            self._refuse(step, f"{positions} positions, but the declared budget is {budget}")
        if not positions:
            self._refuse(step, "it moves requests but computes nothing")

    def _refuse(self, step: int, rule: str) -> NoReturn:
        raise PlanError(self._policy, step, rule)
