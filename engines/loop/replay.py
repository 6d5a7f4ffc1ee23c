"""Plans a logged run again: the same loop, policy and memory, driven by the log on a virtual clock.

Time, arrivals, cancellations and tokens come from the log; only the plans are made anew, and held
against those that were made. No model and no torch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Generic, cast

from engines.api import CbbenchError, Due, EngineInfo, Request, RequestId, StepEvents
from engines.clock import VirtualClock
from engines.loop.build import make_policy
from engines.loop.executors.api import Batch, StepResult
from engines.loop.kv.api import KVCache
from engines.loop.kv.choose import make_cache
from engines.loop.loop import EngineLoop
from engines.loop.plan import Plan, Policy, State, View
from engines.loop.plan_log import Turn
from engines.loop.policies.registry import PolicyContext, policy_name


@dataclass(frozen=True, slots=True)
class Difference:
    """The first turn that went another way. `None` for a plan: nobody was there to plan for."""

    step: int
    time_s: float
    logged: Plan | None
    planned: Plan | None
    why: str = ""


@dataclass(frozen=True, slots=True)
class Replay:
    """How far two runs agree: all `plans` (waits too) of the log, or those before `difference`."""

    plans: int
    steps: int
    difference: Difference | None = None


class _Parted(Exception):
    """The two runs have parted; what the log says next belongs to another run."""

    def __init__(self, planned: Plan | None, why: str = "") -> None:
        self.planned = planned
        self.why = why


def replay(info: EngineInfo, turns: Iterable[Turn]) -> Replay:
    """Runs the loop that `info` describes. Raises `CbbenchError` when it cannot be built again."""
    policy, cache = _rebuild(info)
    tape = _Tape(turns)
    loop = EngineLoop(_Checked(policy, tape), cache, _Logged(tape), info)
    tape.stop = loop.stop
    try:
        if tape.start():
            loop.run(_Source(tape), _Sink(tape), tape.clock)
            tape.check_end()
    except _Parted as parted:
        return tape.outcome(parted.planned, parted.why)
    return Replay(tape.plans, tape.steps)


def _rebuild(info: EngineInfo) -> tuple[Policy[Any], KVCache]:
    try:
        policy_name(str(info.settings["policy"]))
        num_blocks = cast(int, info.settings["num_blocks"])
        cache = make_cache(info.settings, num_blocks, info.max_model_len)
        device = "cpu" if info.model is None else info.model.device.partition(":")[0]
        return make_policy(info.settings, PolicyContext(device, info.max_model_len)), cache
    except KeyError as error:
        raise CbbenchError(
            f"the log's engine has no setting {error}, which its loop needs now; "
            "replay it with the cbbench that wrote it"
        ) from error


class _Tape:
    """The log, one turn at a time, and the clock that follows it."""

    def __init__(self, turns: Iterable[Turn]) -> None:
        self._turns = iter(turns)
        self._next: Turn | None = None
        self._now: Turn | None = None
        self._is_planned = False
        self.clock = VirtualClock()
        self.stop: Callable[[], None] = lambda: None
        self.plans = 0
        self.steps = 0

    @property
    def turn(self) -> Turn:
        assert self._now is not None
        return self._now

    def start(self) -> bool:
        """Sets the clock to the first turn; `False` for an empty log."""
        self._next = next(self._turns, None)
        if self._next is None:
            return False
        self.clock.sleep_until(self._next.look.now_s)
        return True

    def begin_turn(self) -> Turn:
        """The loop looks at the world."""
        assert self._next is not None, "the loop was stopped where its log ends"
        self._now, self._next = self._next, next(self._turns, None)
        self._is_planned = False
        return self._now

    def check(self, planned: Plan) -> None:
        """Raises `_Parted` unless the log's plan is the same."""
        if self.turn.plan is None or facts(self.turn.plan) != facts(planned):
            raise _Parted(planned)
        self._is_planned = True
        self.plans += 1

    def end_turn(self) -> None:
        """Time goes on to the next turn; where the log ends, the loop is stopped."""
        self._check_planned()
        if self._next is None:
            self.stop()
        else:
            self.clock.sleep_until(self._next.look.now_s)

    def check_end(self) -> None:
        """Raises `_Parted` when the log goes on after the loop's end."""
        self._check_planned()
        if self._next is not None:
            self._now = self._next
            raise _Parted(None, "the replay ended before its log")

    def outcome(self, planned: Plan | None, why: str) -> Replay:
        """That the present turn differs."""
        difference = Difference(self.steps, self.turn.look.now_s, self.turn.plan, planned, why)
        return Replay(self.plans, self.steps, difference)

    def _check_planned(self) -> None:
        if self.turn.plan is not None and not self._is_planned:
            raise _Parted(None)


class _Source:
    """What arrives, as the log has it. A wait lasts to the next turn."""

    def __init__(self, tape: _Tape) -> None:
        self._tape = tape

    def take(self, now_s: float, limit: int) -> list[Request]:
        return list(self._tape.begin_turn().look.arrived)

    def next_due(self) -> Due:
        return self._tape.turn.look.next_due

    def cancelled(self) -> tuple[RequestId, ...]:
        return tuple(self._tape.turn.look.cancelled)

    def wait(self, until_s: float) -> None:
        self._tape.end_turn()


class _Sink:
    """Hears the end of each step."""

    def __init__(self, tape: _Tape) -> None:
        self._tape = tape

    def emit(self, events: StepEvents) -> None:
        if events.step is not None:
            self._tape.end_turn()


class _Checked(Generic[State]):
    """A policy whose every plan is held against the log before it counts."""

    def __init__(self, policy: Policy[State], tape: _Tape) -> None:
        self._policy = policy
        self._tape = tape
        self.name = policy.name
        self.limits = policy.limits

    def initial_state(self) -> State:
        return self._policy.initial_state()

    def plan(self, view: View, state: State) -> tuple[Plan, State]:
        plan, state = self._policy.plan(view, state)
        self._tape.check(plan)
        return plan, state


class _Logged:
    """An executor that gives what the logged step gave, when it gave it."""

    def __init__(self, tape: _Tape) -> None:
        self._tape = tape

    def submit(self, batch: Batch) -> _Logged:
        """Raises `CbbenchError` for a log whose step does not fit its own plan."""
        result = self._tape.turn.result
        given = [] if result is None else [bool(tokens) for tokens in result.tokens]
        if given != [row.sample for row in batch.rows]:
            raise CbbenchError(
                f"step {batch.step} of the log has tokens for {given.count(True)} of {len(given)} "
                f"rows, its plan wants them for {sum(row.sample for row in batch.rows)} of "
                f"{len(batch.rows)}; the log was not written whole by one run"
            )
        return self

    def result(self) -> StepResult:
        turn = self._tape.turn
        assert turn.result is not None
        assert turn.delivered_s is not None
        self._tape.clock.sleep_until(turn.delivered_s)
        self._tape.steps += 1
        return turn.result

    def drop(self, request_id: RequestId) -> None:
        pass

    def reset(self) -> None:
        pass

    def close(self) -> None:
        pass


def facts(plan: Plan) -> tuple[object, ...]:
    """All that a plan says, in its own order."""
    return (
        tuple(plan.preempt.items()),
        tuple(plan.resume.items()),
        tuple(plan.admit.items()),
        tuple(plan.work.items()),
        tuple(plan.lookahead.items()),
        tuple((row.num_tokens, row.context) for row in plan.padding),
        plan.wait_until,
    )
