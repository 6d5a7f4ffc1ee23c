"""A decision as data: what a policy sees, what it answers, and what it declares of itself.

There is no prefill phase and no decode phase here: computed chases known tokens, so static,
window and chunked policies are one kind of object. Whether a plan is legal is verify.py's matter.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol, TypeVar

from engines.api import CbbenchError, Due, RequestId
from engines.loop.executors.api import PaddingRow
from engines.loop.kv.api import Trial
from engines.loop.sequence import SequenceView

PreemptMode = Literal["recompute", "swap"]
State = TypeVar("State")


class PlanError(CbbenchError):
    """A policy's plan broke a rule; nothing of it was carried out."""

    def __init__(self, policy: str, step: int, rule: str) -> None:
        super().__init__(f"policy {policy!r} made an illegal plan at step {step}: {rule}")


@dataclass(frozen=True, slots=True)
class Plan:
    """One step, carried out in this order: preempt, then `work` in its own order, each resume or
    admission just before its request's work, then resumes and admissions without work, then
    padding. A policy that tries things in this order on its trial gets from the memory just what
    the loop will get.

    `admit` and `resume` give each request and the number of token positions to reserve for it at
    once (0: only what its work needs, or what it had computed). `work[id]` is the number of known
    tokens to compute, at least 1; `lookahead[id]` allows draft positions behind them. `padding` is
    computed for nobody.
    `wait_until` (seconds, `inf` for "until something arrives") stands alone: no step is made.
    """

    preempt: Mapping[RequestId, PreemptMode] = field(default_factory=dict)
    resume: Mapping[RequestId, int] = field(default_factory=dict)
    admit: Mapping[RequestId, int] = field(default_factory=dict)
    work: Mapping[RequestId, int] = field(default_factory=dict)
    lookahead: Mapping[RequestId, int] = field(default_factory=dict)
    padding: Sequence[PaddingRow] = ()
    wait_until: float | None = None

    @property
    def is_empty(self) -> bool:
        return not (self.preempt or self.resume or self.admit or self.work or self.padding)


@dataclass(frozen=True, slots=True)
class Limits:
    """What a policy declares and the loop holds it to.

    `max_num_batched_tokens` bounds the positions of a step, padding and drafts included; `None`
    for request-level policies, which have no budget. `max_request_len` is the longest request
    (prompt + `max_tokens`) that the policy can ever serve; longer ones are rejected at submit, with
    `longest_because` as the reason.
    """

    max_num_seqs: int
    max_num_batched_tokens: int | None = None
    max_request_len: int | None = None
    longest_because: str = ""


class View(Protocol):
    """What a policy sees: live and read-only. `running` and `waiting` are in order of arrival.

    `running` are the residents, scheduled or not. `waiting` is lazy and may be long. `swapped`
    lie on the host. `next_due` is the source's state; `last_end_s` is when the last step ended,
    `-inf` before the first.
    """

    @property
    def now_s(self) -> float: ...
    @property
    def last_end_s(self) -> float: ...
    @property
    def running(self) -> Sequence[SequenceView]: ...
    @property
    def waiting(self) -> Iterable[SequenceView]: ...
    @property
    def num_waiting(self) -> int: ...
    @property
    def swapped(self) -> Sequence[SequenceView]: ...
    @property
    def next_due(self) -> Due: ...

    def trial(self) -> Trial:
        """The memory to try things on, as it is now; an earlier trial is given up."""
        ...


class Policy(Protocol[State]):
    """The decision: a pure function. All it remembers is in `state`, an immutable value."""

    @property
    def name(self) -> str: ...
    @property
    def limits(self) -> Limits: ...

    def initial_state(self) -> State: ...

    def plan(self, view: View, state: State) -> tuple[Plan, State]: ...
