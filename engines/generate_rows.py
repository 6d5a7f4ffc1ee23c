"""One running batch of `generate`: whose row is live, what it has got, what each step was for.

Counts and times on plain numbers: no torch, no clock. Knows nothing of the model; it is told each
step's tokens and answers which rows have ended.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from engines.api import Finish, FinishReason, Request, RequestStats, Status, StepEvents, StepRow


@dataclass(slots=True)
class Row:
    """A request in the batch. `status` is set once it has ended, `reported` once that is told."""

    request: Request
    max_tokens: int
    stop_ids: Collection[int]
    tokens: list[int] = field(default_factory=list)
    num_steps: int = 0
    status: Status | None = None
    finish_reason: FinishReason | None = None
    reason: str = ""
    reported: bool = False

    def append(self, token: int) -> None:
        self.tokens.append(token)
        if token in self.stop_ids:
            self.status, self.finish_reason = "ok", "stop"
        elif len(self.tokens) == self.max_tokens:
            self.status, self.finish_reason = "ok", "length"


@dataclass(frozen=True, slots=True)
class StepPlace:
    """What a step's row says of the engine around the batch; times as in `StepRow`.

    The step lasts from `start_s` to `end_s`; scheduling and packing within it are no compute.
    """

    step: int
    start_s: float
    end_s: float
    pack_s: float
    schedule_s: float
    num_waiting: int


@dataclass(slots=True)
class BatchRun:
    """`slots` is the most rows a batch may have; `streams`: tokens leave as each step ends.

    `reserves_whole`: the cache has the batch's last size from the start, else it grows.
    """

    rows: Sequence[Row]
    slots: int
    streams: bool
    started_s: float
    reserves_whole: bool = False
    first_step_end_s: float | None = None
    num_steps: int = 0

    @property
    def width(self) -> int:
        """Columns of the padded prompts."""
        return max(len(row.request.prompt_token_ids) for row in self.rows)

    @property
    def longest(self) -> int:
        """The most tokens that a row may still ask for, from the start."""
        return max(row.max_tokens for row in self.rows)

    def ended(self) -> list[bool]:
        """One flag a row."""
        return [row.status is not None for row in self.rows]

    def advance(self, tokens: Sequence[int], place: StepPlace) -> StepEvents:
        """Takes the step's token of every row, those of ended rows too, which are dropped."""
        live = [i for i, row in enumerate(self.rows) if row.status is None]
        step = self._step_row(live, place)
        for i in live:
            self.rows[i].append(tokens[i])
            self.rows[i].num_steps += 1
        if self.first_step_end_s is None:
            self.first_step_end_s = place.end_s
        self.num_steps += 1
        return self._deliver([self.rows[i] for i in live], place.end_s, step)

    def end(self, row: Row, status: Status, reason: str, now_s: float) -> Finish:
        """Ends a row that has not been reported yet, without further tokens."""
        row.status, row.finish_reason, row.reason = status, None, reason
        return self._report(row, now_s)

    def unreported(self) -> list[Row]:
        """Those whose end nobody has been told, ended or not."""
        return [row for row in self.rows if not row.reported]

    def unended(self) -> list[Row]:
        return [row for row in self.rows if row.status is None]

    def deliver_finished(self, now_s: float) -> StepEvents:
        """What has ended well and was held back for the batch's end."""
        done = [row for row in self.rows if row.status == "ok" and not row.reported]
        return StepEvents(
            time_s=now_s,
            request_ids=[row.request.request_id for row in done],
            token_ids=[list(row.tokens) for row in done],
            finished=[self._report(row, now_s) for row in done],
        )

    def _deliver(self, live: Sequence[Row], now_s: float, step: StepRow) -> StepEvents:
        if self.streams:
            return StepEvents(
                time_s=now_s,
                request_ids=[row.request.request_id for row in live],
                token_ids=[row.tokens[-1:] for row in live],
                finished=[self._report(row, now_s) for row in live if row.status is not None],
                step=step,
            )
        if not all(self.ended()):
            return StepEvents(time_s=now_s, step=step)
        held = self.deliver_finished(now_s)
        return StepEvents(now_s, held.request_ids, held.token_ids, held.finished, step)

    def _report(self, row: Row, now_s: float) -> Finish:
        row.reported = True
        return Finish(
            request_id=row.request.request_id,
            status=row.status or "failed",
            finish_reason=row.finish_reason,
            reason=row.reason,
            stats=self._stats(row, now_s),
        )

    def _stats(self, row: Row, now_s: float) -> RequestStats:
        prefill_end_s = now_s if self.first_step_end_s is None else self.first_step_end_s
        return RequestStats(
            queue_s=self.started_s - row.request.scheduled_s,
            prefill_s=prefill_end_s - self.started_s,
            decode_s=now_s - prefill_end_s,
            preempted_s=0.0,
            num_preemptions=0,
            num_steps=row.num_steps,
            max_stall_cause="compute" if self.streams and len(row.tokens) > 1 else None,
            first_time_prompt=len(row.request.prompt_token_ids) if row.num_steps else 0,
            first_time_output=max(0, row.num_steps - 1),
            prefix_hit_tokens=0,
            num_prefill_steps=min(1, row.num_steps),
        )

    def _columns(self) -> int:
        """Positions that the cache has for each row; the last token is never fed back."""
        return self.width + (self.longest - 1 if self.reserves_whole else self.num_steps)

    def _step_row(self, live: Sequence[int], place: StepPlace) -> StepRow:
        """A prefill computes rows x width positions, a decode step one a row, ended ones too."""
        prefill = self.num_steps == 0
        prompts = [len(row.request.prompt_token_ids) for row in self.rows]
        prompt = sum(prompts) if prefill else 0
        output = 0 if prefill else len(live)
        executed = len(self.rows) * (self.width if prefill else 1)
        held = sum(prompts[i] + self.num_steps for i in live)
        reserved = len(self.rows) * self._columns()
        duration_s = place.end_s - place.start_s
        return StepRow(
            step=place.step,
            start_s=place.start_s,
            end_s=place.end_s,
            compute_s=max(0.0, duration_s - place.pack_s - place.schedule_s),
            schedule_s=place.schedule_s,
            pack_s=place.pack_s,
            copy_s=0.0,
            num_running=len(live) if self.streams else len(self.unreported()),
            num_waiting=place.num_waiting,
            slots=self.slots,
            useful_rows=len(live),
            prefill_tokens=prompt,
            decode_tokens=output,
            prompt=prompt,
            output=output,
            padding=executed - prompt - output,
            tokens_held=held,
            tokens_reserved=reserved,
            positions=executed,
            lost_to_reservation=reserved - held,
        )
