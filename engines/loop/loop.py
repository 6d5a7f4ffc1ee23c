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
    End,
    EngineInfo,
    Finish,
    FinishReason,
    RequestSource,
    Sink,
    Status,
    StepEvents,
    StepRow,
)
from engines.loop.admission import Door
from engines.loop.executors.api import Executor, StepResult
from engines.loop.kv.api import KVCache
from engines.loop.plan import Plan, Policy, State
from engines.loop.roster import Roster
from engines.loop.sequence import Sequence
from engines.loop.step import Delivery, apply_result, build_batch
from engines.loop.verify import Residents, Verified, Verifier
from engines.loop.view import LoopView

_LONGEST_NAP_S: Final = 0.25  # stop() is heard while nothing arrives


class EngineLoop(Generic[State]):
    """See `engines.api.Engine`. One policy, one cache, one executor; one `run` at a time."""

    def __init__(
        self, policy: Policy[State], cache: KVCache, executor: Executor, info: EngineInfo
    ) -> None:
        self._policy = policy
        self._cache = cache
        self._executor = executor
        self._info = info
        self._stopping = threading.Event()

    def run(self, source: RequestSource, sink: Sink, clock: Clock) -> None:
        """Serves until the source ends or `stop()`. Raises `PlanError` for an illegal plan.

        What is unfinished then is `cancelled`, or `failed` when an error ends the run.
        """
        run = _Run(self, source, sink, clock)
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


class _Run(Generic[State]):
    """One serving of one source: the sequences alive, the policy's state, the step's number."""

    def __init__(
        self, engine: EngineLoop[State], source: RequestSource, sink: Sink, clock: Clock
    ) -> None:
        self._policy, self._cache, self._executor, info = engine.parts
        self._stopping = engine.stopping
        self._source = source
        self._sink = sink
        self._clock = clock
        self._roster = Roster(info.model.eos_token_ids if info.model is not None else ())
        self._view = LoopView(self._roster, self._cache, source)
        self._state = self._policy.initial_state()
        self._step = 0
        self._dropped: list[str] = []
        limits = self._policy.limits
        self._slots = limits.max_num_seqs
        self._verifier = Verifier(self._policy.name, limits, self._cache)
        self._residents = Residents(
            self._roster.running.by_id, self._roster.waiting.by_id, self._roster.swapped.by_id
        )
        self._door = Door(
            info.max_model_len,
            self._cache.block_size,
            self._cache.num_blocks,
            limits.max_request_len,
        )

    def turn(self) -> bool:
        """One round: a step, or a wait. `False` when the source has ended and nobody is left."""
        self._take()
        self._cancel()
        if not len(self._roster):
            return self._idle()
        start_s = self._view.at(self._clock).now_s
        plan, state = self._policy.plan(self._view, self._state)
        self._view.give_up_trial()
        if plan.wait_until is not None or plan.is_empty:
            self._verifier.check_wait(plan, self._step, start_s, self._source.next_due())
            self._state = state
            self._nap(plan.wait_until or start_s)
            return True
        verified = self._verifier.check(plan, self._step, self._residents)
        verified.trial.commit()
        self._state = state
        self._make_step(plan, verified, start_s)
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

    def _take(self) -> None:
        now_s = self._clock.now()
        refused = []
        for request in self._source.take(now_s, sys.maxsize):
            reason = self._door.refusal(request)
            if not reason and self._roster.find(request.request_id) is not None:
                reason = f"a request called {request.request_id!r} is being served already"
            if reason:
                refused.append(Finish(request.request_id, "rejected", reason=reason))
            else:
                self._roster.submit(request, self._door.max_tokens(request))
        if refused:
            self._sink.emit(StepEvents(now_s, finished=refused))

    def _cancel(self) -> None:
        left = [
            sequence
            for name in self._source.cancelled()
            if (sequence := self._roster.find(name)) is not None
        ]
        if left:
            now_s = self._clock.now()
            finished = [
                self._end(sequence, "cancelled", None, "the client left", now_s)
                for sequence in left
            ]
            self._sink.emit(StepEvents(now_s, finished=finished))

    def _idle(self) -> bool:
        due = self._source.next_due()
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

    def _make_step(self, plan: Plan, verified: Verified, start_s: float) -> None:
        self._move(plan, verified, start_s)
        planned_s = self._clock.now()
        dropped, self._dropped = self._dropped, []
        batch = build_batch(
            plan, self._step, self._roster, self._cache, verified.swapped_out, dropped
        )
        built_s = self._clock.now()
        result = self._executor.submit(batch).result()
        now_s = self._clock.now()
        delivery = apply_result(batch, result, self._roster, self._cache, now_s)
        row = self._row(plan, delivery, result, start_s, planned_s - start_s, built_s - planned_s)
        finished = self._finish(delivery.ended, now_s)
        self._sink.emit(StepEvents(now_s, delivery.request_ids, delivery.token_ids, finished, row))
        self._step += 1

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
            self._dropped.append(sequence.request_id)
        return Finish(sequence.request_id, status, finish_reason, reason, sequence.stats(now_s))

    def _row(
        self,
        plan: Plan,
        delivery: Delivery,
        result: StepResult,
        start_s: float,
        schedule_s: float,
        build_s: float,
    ) -> StepRow:
        ledger, cache, running = delivery.ledger, self._cache, self._roster.running
        free = cache.free_blocks
        used = cache.num_blocks - free
        return StepRow(
            step=self._step,
            start_s=start_s,
            end_s=self._clock.now(),
            compute_s=result.compute_s,
            schedule_s=schedule_s,
            pack_s=build_s + result.prepare_s,
            copy_s=result.copy_s,
            num_running=len(running),
            num_waiting=len(self._roster.waiting) + len(self._roster.swapped),
            slots=self._slots,
            useful_rows=ledger.rows,
            prefill_tokens=ledger.prefill_tokens,
            decode_tokens=sum(plan.work.values()) - ledger.prefill_tokens,
            prompt=ledger.prompt,
            output=ledger.output,
            recomputed=ledger.recomputed,
            padding=ledger.padding,
            rejected_draft=ledger.rejected_draft,
            past_stop=ledger.past_stop,
            tokens_held=sum(sequence.num_computed for sequence in running.in_order),
            tokens_reserved=used * cache.block_size,
            blocks_used=used,
            blocks_cached=cache.cached_blocks,
            blocks_free=free - cache.cached_blocks,
            preemptions=len(plan.preempt),
        )
