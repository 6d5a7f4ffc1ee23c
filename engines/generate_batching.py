"""When `generate` engines start a batch, how large it is, and whom they turn away.

Pure logic on numbers: no torch, no clock, no source. Request-level batching only: a batch that has
started takes nobody in until it ends.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from engines.admission import answer_bound, context_refusal
from engines.api import Due, End, Request


@dataclass(frozen=True, slots=True)
class BatchRule:
    """`max_delay_s` is the window, counted from the oldest arrival; `None`: no timer at all.

    With a window, what queued up while a batch ran goes out at once, together, as the next one.
    """

    max_batch_size: int
    max_delay_s: float | None


@dataclass(frozen=True, slots=True)
class Start:
    """Run the `size` oldest waiting requests now."""

    size: int


@dataclass(frozen=True, slots=True)
class WaitUntil:
    """Look again at `time_s`, or when something has arrived."""

    time_s: float


@dataclass(frozen=True, slots=True)
class Done:
    """Nobody waits and nobody will come."""


def decide(
    rule: BatchRule,
    num_waiting: int,
    oldest_arrival_s: float,
    now_s: float,
    due: Due,
    fits: int,
    *,
    batch_just_ended: bool,
) -> Start | WaitUntil | Done:
    """What to do while no batch runs.

    `fits` of the oldest waiting requests fit into the memory together. A batch that memory keeps
    from growing is full, as one of `max_batch_size` is.
    """
    if num_waiting == 0:
        if isinstance(due, End):
            return Done()
        return WaitUntil(due if isinstance(due, float) else math.inf)
    if num_waiting >= rule.max_batch_size or fits < num_waiting:
        return Start(min(rule.max_batch_size, fits))
    if rule.max_delay_s is None:
        return WaitUntil(due) if isinstance(due, float) else Start(num_waiting)
    deadline_s = oldest_arrival_s + rule.max_delay_s
    if now_s >= deadline_s or batch_just_ended:
        return Start(num_waiting)
    return WaitUntil(min(deadline_s, due) if isinstance(due, float) else deadline_s)


@dataclass(frozen=True, slots=True)
class Bounds:
    """What context and memory allow, in tokens. `kv_tokens` of `None`: memory is not bounded."""

    max_model_len: int
    kv_tokens: int | None

    def max_tokens(self, request: Request) -> int:
        """The answer's bound: its own, or for `None` all that context and memory leave."""
        longest = self.max_model_len
        if self.kv_tokens is not None:
            longest = min(longest, self.kv_tokens + 1)
        return answer_bound(request, longest)

    def refusal(self, request: Request) -> str:
        """Why it can never run, with the numbers; empty when it can.

        The last token is never fed back, so P + n tokens hold P + n - 1 positions.
        """
        prompt, answer = len(request.prompt_token_ids), self.max_tokens(request)
        if reason := context_refusal(prompt, answer, self.max_model_len):
            return reason
        if self.kv_tokens is not None and prompt + answer - 1 > self.kv_tokens:
            return (
                f"prompt {prompt} + max_tokens {answer} hold {prompt + answer - 1} positions, "
                f"kv_memory has room for {self.kv_tokens}"
            )
        return ""

    def fits(self, requests: Iterable[Request]) -> int:
        """How many of `requests`, from the first on, run as one batch; at least one.

        Each row of a batch takes the widest prompt plus the longest answer.
        """
        width = longest = count = 0
        for request in requests:
            width = max(width, len(request.prompt_token_ids))
            longest = max(longest, self.max_tokens(request))
            positions = (count + 1) * (width + longest - 1)
            if count and self.kv_tokens is not None and positions > self.kv_tokens:
                break
            count += 1
        return count
