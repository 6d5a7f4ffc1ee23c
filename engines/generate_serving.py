"""One run of a `generate` engine: listen, decide, run a batch, tell what happened; again.

Between the pure parts (generate_batching, generate_rows) and what computes, which is behind a
protocol: no torch here, so that all of it can be tried with a fake.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final, Protocol

from engines.admission import stop_ids
from engines.api import (
    Clock,
    Finish,
    Request,
    RequestSource,
    RequestStats,
    Sink,
    Status,
    StepEvents,
)
from engines.generate_batching import BatchRule, Bounds, Done, Start, WaitUntil, decide
from engines.generate_rows import BatchRun, Row, StepPlace

OnTokens = Callable[[list[int]], list[bool]]
_LONGEST_NAP_S: Final = 0.25  # stop() is heard while nothing arrives
_ALL_DUE: Final = 1 << 30
_STOPPED: Final = "the run was stopped"
_CLIENT_LEFT: Final = "the client left"


class BatchFailed(Exception):
    """A batch that could not be computed; the next one may be."""


class PackedBatch(Protocol):
    """A batch whose tensors are ready."""

    def run(self, max_new_tokens: int, on_tokens: OnTokens) -> None:
        """Calls `on_tokens` after each forward pass with a token a row, until all have ended.

        The answer is one flag a row: has it ended? Raises `BatchFailed`.
        """
        ...


class Packer(Protocol):
    def pack(self, requests: Sequence[Request]) -> PackedBatch: ...


@dataclass(frozen=True, slots=True)
class Setup:
    """What an engine's runs have in common."""

    rule: BatchRule
    bounds: Bounds
    packer: Packer
    eos_token_ids: tuple[int, ...]
    streams: bool
    reserves_whole: bool
    stopping: threading.Event


class Serving:
    """Owns the waiting requests and the running batch of one run."""

    def __init__(self, setup: Setup, source: RequestSource, sink: Sink, clock: Clock) -> None:
        self._setup = setup
        self._source, self._sink, self._clock = source, sink, clock
        self._waiting: deque[Request] = deque()
        self._batch: BatchRun | None = None
        self._batch_just_ended = False
        self._step = 0

    def serve(self) -> None:
        """Returns at the source's end, or once `stopping` is set; then nobody is left waiting.

        An error that is no `BatchFailed` ends everybody as `failed`, and is raised.
        """
        try:
            self._serve()
        except BaseException as error:
            self._abandon(f"the engine stopped with an error: {error}")
            raise

    def _serve(self) -> None:
        while not self._setup.stopping.is_set():
            looked_s = self._clock.now()
            self._listen()
            action = self._decide()
            if isinstance(action, Done):
                return
            if isinstance(action, Start):
                self._run_batch(action.size, looked_s)
            else:
                self._source.wait(min(action.time_s, self._clock.now() + _LONGEST_NAP_S))
        self._turn_away(self._all_waiting(), "cancelled", _STOPPED)

    def _abandon(self, reason: str) -> None:
        """Ends everybody whose end nobody has been told, those with a held back answer too."""
        batch, self._batch = self._batch, None
        if batch is not None:
            self._end_rows(batch, batch.unreported(), "failed", reason)
        self._turn_away(self._all_waiting(), "failed", reason)

    def _all_waiting(self) -> list[Request]:
        waiting, self._waiting = list(self._waiting), deque()
        return waiting

    def _listen(self) -> None:
        """Takes in what is due and lets go who has left, during a batch too."""
        self._let_go(frozenset(self._source.cancelled()))
        for request in self._source.take(self._clock.now(), _ALL_DUE):
            reason = self._setup.bounds.refusal(request)
            if reason:
                self._turn_away([request], "rejected", reason)
            else:
                self._waiting.append(request)

    def _let_go(self, gone: frozenset[str]) -> None:
        if not gone:
            return
        leaving = [request for request in self._waiting if request.request_id in gone]
        self._waiting = deque(r for r in self._waiting if r.request_id not in gone)
        self._turn_away(leaving, "cancelled", _CLIENT_LEFT)
        if self._batch is not None:
            rows = [row for row in self._batch.unreported() if row.request.request_id in gone]
            self._end_rows(self._batch, rows, "cancelled", _CLIENT_LEFT)

    def _decide(self) -> Start | WaitUntil | Done:
        setup = self._setup
        oldest = islice(self._waiting, setup.rule.max_batch_size)
        just_ended, self._batch_just_ended = self._batch_just_ended, False
        return decide(
            setup.rule,
            num_waiting=len(self._waiting),
            oldest_arrival_s=self._waiting[0].scheduled_s if self._waiting else 0.0,
            now_s=self._clock.now(),
            due=self._source.next_due(),
            fits=setup.bounds.fits(oldest),
            batch_just_ended=just_ended,
        )

    def _run_batch(self, size: int, looked_s: float) -> None:
        requests = [self._waiting.popleft() for _ in range(size)]
        started_s = self._clock.now()
        batch = BatchRun(
            rows=[self._row(request) for request in requests],
            slots=self._setup.rule.max_batch_size,
            streams=self._setup.streams,
            started_s=started_s,
            reserves_whole=self._setup.reserves_whole,
        )
        self._batch = batch
        packed = self._setup.packer.pack(requests)
        pack_s = self._clock.now() - started_s
        steps = _Steps(batch, looked_s, pack_s, schedule_s=started_s - looked_s)
        try:
            packed.run(batch.longest, lambda tokens: self._on_tokens(steps, tokens))
        except BatchFailed as error:
            self._end_rows(batch, batch.unended(), "failed", str(error))
        self._emit(batch.deliver_finished(self._clock.now()))
        self._end_rows(batch, batch.unended(), "cancelled", _STOPPED)
        self._batch = None
        self._batch_just_ended = True

    def _on_tokens(self, steps: _Steps, tokens: list[int]) -> list[bool]:
        end_s = self._clock.now()
        place = StepPlace(
            step=self._step,
            start_s=steps.start_s,
            end_s=end_s,
            pack_s=steps.pack_s,
            schedule_s=steps.schedule_s,
            num_waiting=len(self._waiting),
        )
        self._step += 1
        self._emit(steps.batch.advance(tokens, place))
        self._listen()
        steps.begin_next(end_s, self._clock.now())
        if self._setup.stopping.is_set():
            return [True] * len(tokens)
        return steps.batch.ended()

    def _row(self, request: Request) -> Row:
        stops = stop_ids(request, self._setup.eos_token_ids)
        return Row(request, self._setup.bounds.max_tokens(request), stops)

    def _end_rows(self, batch: BatchRun, rows: list[Row], status: Status, reason: str) -> None:
        now_s = self._clock.now()
        ends = [batch.end(row, status, reason, now_s) for row in rows]
        self._emit(StepEvents(time_s=now_s, finished=ends))

    def _turn_away(self, requests: list[Request], status: Status, reason: str) -> None:
        """Ends requests that no batch has taken in."""
        now_s = self._clock.now()
        ends = [_unstarted(request, status, reason, now_s) for request in requests]
        self._emit(StepEvents(time_s=now_s, finished=ends))

    def _emit(self, events: StepEvents) -> None:
        if events.finished or events.request_ids or events.step is not None:
            self._sink.emit(events)


@dataclass(slots=True)
class _Steps:
    """When the batch's step under way began, and what was spent on it before computing."""

    batch: BatchRun
    start_s: float
    pack_s: float
    schedule_s: float

    def begin_next(self, last_end_s: float, now_s: float) -> None:
        """The next step begins where the last ended; what was listened to is scheduling."""
        self.start_s, self.pack_s, self.schedule_s = last_end_s, 0.0, now_s - last_end_s


def _unstarted(request: Request, status: Status, reason: str, now_s: float) -> Finish:
    stats = RequestStats(
        queue_s=now_s - request.scheduled_s,
        prefill_s=0.0,
        decode_s=0.0,
        preempted_s=0.0,
        num_preemptions=0,
        num_steps=0,
    )
    return Finish(request.request_id, status, reason=reason, stats=stats)
