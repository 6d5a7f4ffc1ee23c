"""The only step loop: take what is due, ask the policy, verify, commit, compute, deliver.

It owns the order of things. It does not decide who runs (the policy), who holds which block (the
cache) or how a step is computed (the executor), and it is the same for real and simulated runs:
those differ in the executor and the clock alone.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterable
from typing import Final, Generic

from engines.api import (
    CbbenchError,
    Clock,
    Due,
    End,
    EngineInfo,
    Finish,
    FinishReason,
    Request,
    RequestId,
    RequestSource,
    Sink,
    Status,
    StepEvents,
)
from engines.loop.admission import Door
from engines.loop.executors.api import Executor, StepResult
from engines.loop.kv.api import KVCache
from engines.loop.plan import Plan, Policy, State
from engines.loop.plan_log import Look, Turn, TurnObserver
from engines.loop.roster import Roster
from engines.loop.sequence import Sequence
from engines.loop.step import apply_result, build_batch, positions_of
from engines.loop.step_log import MemoryUse, StepTimes, step_row
from engines.loop.verify import Residents, Verified, Verifier
from engines.loop.view import LoopView

_LONGEST_NAP_S: Final = 0.25  # stop() is heard while nothing arrives


class EngineLoop(Generic[State]):
    """See `engines.api.Engine`. One policy, one cache, one executor; one `run` at a time."""

    def __init__(
        self,
        policy: Policy[State],
        cache: KVCache,
        executor: Executor,
        info: EngineInfo,
        observer: TurnObserver | None = None,
    ) -> None:
        self.observer = observer
        self._policy = policy
        self._cache = cache
        self._executor = executor
        self._info = info
        self._stopping = threading.Event()

    def run(self, source: RequestSource, sink: Sink, clock: Clock) -> None:
        """Serves until the source ends or `stop()`. Raises `PlanError` for an illegal plan.

        What is unfinished then is `cancelled`, or `failed` when an error ends the run.
        """
        run = self.begin(source, sink, clock)
        try:
            while not self._stopping.is_set() and run.turn():
                pass
        except BaseException as error:
            run.abandon("failed", f"the engine stopped with an error: {error}")
            raise
        else:
            run.abandon("cancelled", "the run was stopped")
        finally:
            self._stopping.clear()

    def begin(self, source: RequestSource, sink: Sink, clock: Clock) -> Serving[State]:
        """A run in the caller's hands, turn by turn; whoever begins it also abandons it."""
        return Serving(self, source, sink, clock)

    def stop(self) -> None:
        self._stopping.set()

    def describe(self) -> EngineInfo:
        return self._info

    def reset(self) -> None:
        self._cache.reset()
        self._executor.reset()

    def close(self) -> None:
        self._executor.close()

    @property
    def parts(self) -> tuple[Policy[State], KVCache, Executor, EngineInfo]:
        """What the loop was made of."""
        return self._policy, self._cache, self._executor, self._info

    @property
    def stopping(self) -> threading.Event:
        """Set from another thread when `run` is to return."""
        return self._stopping


class Serving(Generic[State]):
    """One serving of one source: the sequences alive, the policy's state, the step's number."""

    def __init__(
        self, engine: EngineLoop[State], source: RequestSource, sink: Sink, clock: Clock
    ) -> None:
        self._policy, self._cache, self._executor, info = engine.parts
        self._stopping = engine.stopping
        self._observer = engine.observer
        self._source = source
        self._sink = sink
        self._clock = clock
        self._roster = Roster(info.model.eos_token_ids if info.model is not None else ())
        self._view = LoopView(self._roster, self._cache)
        self._state = self._policy.initial_state()
        self._step = 0
        limits = self._policy.limits
        self._slots = limits.max_num_seqs
        self._verifier = Verifier(self._policy.name, limits, self._cache)
        self._residents = Residents(
            self._roster.running.by_id, self._roster.waiting.by_id, self._roster.swapped.by_id
        )
        self._door = Door(
            info.max_model_len, self._cache, limits.max_request_len, limits.longest_because
        )

    def turn(self) -> bool:
        """One round: a step, or a wait. `False` when the source has ended and nobody is left."""
        look = self._look()
        looked_s = self._clock.now()
        if not len(self._roster):
            self._tell(Turn(look))
            return self._idle(look.next_due)
        self._view.look(look.now_s, look.next_due)
        plan, state = self._policy.plan(self._view, self._state)
        self._view.give_up_trial()
        if plan.wait_until is not None or plan.is_empty:
            self._verifier.check_wait(plan, self._step, look.now_s, look.next_due)
            self._state = state
            self._tell(Turn(look, plan))
            self._nap(plan.wait_until or look.now_s)
            return True
        verified = self._verifier.check(plan, self._step, self._residents)
        verified.trial.commit()
        self._state = state
        result, delivered_s = self._make_step(plan, verified, look.now_s, looked_s)
        self._tell(Turn(look, plan, result, delivered_s))
        return True

    def abandon(self, status: Status, reason: str) -> None:
        """Everybody who is left ends with `status`; memory is given back."""
        self._view.give_up_trial()
        now_s = self._clock.now()
        finished = [
            self._end(sequence, status, None, reason, now_s)
            for sequence in self._roster.everybody()
        ]
        if finished:
            self._sink.emit(StepEvents(now_s, finished=finished))

    def _look(self) -> Look:
        """Lets in and lets go whoever came or left; the one look at the world of a turn."""
        now_s = self._clock.now()
        arrived = self._source.take(now_s, sys.maxsize)
        self._let_in(arrived, now_s)
        cancelled = self._source.cancelled()
        self._let_go(cancelled, now_s)
        return Look(now_s, arrived, cancelled, self._source.next_due())

    def _tell(self, turn: Turn) -> None:
        if self._observer is not None:
            self._observer.turn(turn)

    def _let_in(self, arrived: Iterable[Request], now_s: float) -> None:
        refused = []
        for request in arrived:
            reason = self._door.refusal(request)
            if not reason and self._roster.find(request.request_id) is not None:
                reason = f"a request called {request.request_id!r} is being served already"
            if reason:
                refused.append(Finish(request.request_id, "rejected", reason=reason))
            else:
                self._roster.submit(request, self._door.max_tokens(request))
        if refused:
            self._sink.emit(StepEvents(now_s, finished=refused))

    def _let_go(self, cancelled: Iterable[RequestId], now_s: float) -> None:
        left = [
            sequence
            for name in dict.fromkeys(cancelled)  # a client may say it twice
            if (sequence := self._roster.find(name)) is not None
        ]
        if left:
            finished = [
                self._end(sequence, "cancelled", None, "the client left", now_s)
                for sequence in left
            ]
            self._sink.emit(StepEvents(now_s, finished=finished))

    def _idle(self, due: Due) -> bool:
        if isinstance(due, End):
            return False
        if not isinstance(due, float | int):
            raise CbbenchError(
                "the source waits for a completion, but no request is being served; "
                "expected a time or the end"
            )
        self._nap(due)
        return True

    def _nap(self, until_s: float) -> None:
        """Waits until `until_s` or for news, in naps short enough to hear a stop."""
        due = self._source.next_due()
        while not self._stopping.is_set():
            nap_ends_s = min(until_s, self._clock.now() + _LONGEST_NAP_S)
            self._source.wait(nap_ends_s)
            is_over = nap_ends_s == until_s or self._clock.now() < nap_ends_s
            if is_over or self._source.next_due() != due:
                return

    def _make_step(
        self, plan: Plan, verified: Verified, start_s: float, looked_s: float
    ) -> tuple[StepResult, float]:
        """What was computed, and when it was delivered. Letting people in is no scheduling."""
        self._move(plan, verified, start_s)
        planned_s = self._clock.now()
        batch = build_batch(plan, self._step, self._roster, self._cache, verified.swapped_out)
        built_s = self._clock.now()
        result = self._executor.submit(batch).result()
        now_s = self._clock.now()
        delivery = apply_result(batch, result, self._roster, self._cache, start_s, now_s)
        used = self._memory_used()
        finished = self._finish(delivery.ended, now_s)
        end_s = self._clock.now()
        times = StepTimes(
            start_s=start_s,
            schedule_s=planned_s - looked_s,
            pack_s=built_s - planned_s + result.prepare_s,
            compute_s=result.compute_s,
            copy_s=result.copy_s,
            update_s=end_s - now_s,
            end_s=end_s,
        )
        row = step_row(
            self._step, times, plan, delivery, used, positions_of(batch, result), self._slots
        )
        self._sink.emit(StepEvents(now_s, delivery.request_ids, delivery.token_ids, finished, row))
        self._view.last_end_s = now_s
        self._step += 1
        return result, now_s

    def _memory_used(self) -> MemoryUse:
        """Before those who have ended give theirs back."""
        cache, roster = self._cache, self._roster
        return MemoryUse(
            num_running=len(roster.running),
            num_waiting=len(roster.waiting) + len(roster.swapped),
            use=cache.use(roster.running.in_order, roster.first_in_line),
            num_blocks=cache.num_blocks,
            free_blocks=cache.free_blocks,
            cached_blocks=cache.cached_blocks,
        )

    def _move(self, plan: Plan, verified: Verified, now_s: float) -> None:
        for name, mode in plan.preempt.items():
            self._roster.preempt(name, mode, now_s)
        for name in plan.resume:
            self._roster.resume(name)
        for name in plan.admit:
            self._roster.admit(name, verified.hits[name])
        running = self._roster.running.by_id
        for name in plan.work:
            running[name].schedule(self._step, now_s)

    def _finish(self, ended: Iterable[tuple[Sequence, FinishReason]], now_s: float) -> list[Finish]:
        return [self._end(sequence, "ok", why, "", now_s) for sequence, why in ended]

    def _end(
        self,
        sequence: Sequence,
        status: Status,
        finish_reason: FinishReason | None,
        reason: str,
        now_s: float,
    ) -> Finish:
        place = self._roster.remove(sequence)
        if place == "running":
            self._cache.free(sequence)
        elif place == "swapped":
            self._executor.drop(sequence.request_id)
        return Finish(sequence.request_id, status, finish_reason, reason, sequence.stats(now_s))
