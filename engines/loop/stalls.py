"""Why a request's tokens stood still: the seconds of a gap between two token events, by cause.

- *preemption*: everything from its preemption to its next token. What it waits for and recomputes
  in that time is the preemption's doing.
- *prefill*: steps that computed prompts and left it out; and of the step that gave its token the
  share of the positions that were prompts (others' prompts: its own row there is one position).
- *token_budget*: the rest of the time in which it was resident and had no work.
- *compute*: the rest of the step that gave its token.

A gap is put down to the cause with the most seconds. Nothing is made or kept for a token: two sums
over the run's steps, and what they were at a request's last token, tell of any gap.
"""

from __future__ import annotations

from dataclasses import dataclass

from engines.api import StallCause


@dataclass(frozen=True, slots=True)
class Instant:
    """A time, and the seconds of steps with prompts in them until then."""

    time_s: float
    prompts_s: float


class StepSums:
    """One object a run: the loop tells it each step, sequences ask it for causes.

    `prompts_s` is the sum of the steps that had prompts in them, in seconds.
    """

    __slots__ = ("_prompts_before_s", "_share", "_start_s", "_step", "prompts_s")

    def __init__(self) -> None:
        self.prompts_s = 0.0
        self._prompts_before_s = 0.0
        self._share = 0.0
        self._start_s = 0.0
        self._step = 0

    def add(self, step: int, start_s: float, end_s: float, prompt_share: float) -> None:
        """A step is computed and about to be delivered; `prompt_share` of its positions, 0 to 1."""
        self._step, self._start_s, self._share = step, start_s, prompt_share
        self._prompts_before_s = self.prompts_s
        if prompt_share > 0:
            self.prompts_s += end_s - start_s

    def now(self, time_s: float) -> Instant:
        return Instant(time_s, self.prompts_s)

    def cause(self, last: Instant, worked_in: int, now_s: float) -> StallCause:
        """Of a gap that the present step ends at `now_s`, for who had work in step `worked_in`
        before and was resident all the time."""
        began_s = self._start_s if worked_in < self._step - 1 else last.time_s
        beside_s = (now_s - began_s) * self._share
        left_out_s = self._prompts_before_s - last.prompts_s
        return _largest(
            prefill=beside_s + left_out_s,
            token_budget=began_s - last.time_s - left_out_s,
            compute=now_s - began_s - beside_s,
        )

    def cause_with_preemption(self, last: Instant, preempted: Instant, now_s: float) -> StallCause:
        """Of a gap with a preemption in it."""
        left_out_s = preempted.prompts_s - last.prompts_s
        return _largest(
            preemption=now_s - preempted.time_s,
            prefill=left_out_s,
            token_budget=preempted.time_s - last.time_s - left_out_s,
        )


def _largest(
    preemption: float = 0.0,
    prefill: float = 0.0,
    token_budget: float = 0.0,
    compute: float = 0.0,
) -> StallCause:
    """The cause with the most seconds; the first of equals."""
    causes: list[tuple[float, StallCause]] = [
        (preemption, "preemption"),
        (prefill, "prefill"),
        (token_budget, "token_budget"),
        (compute, "compute"),
    ]
    return max(causes, key=lambda cause: cause[0])[1]
