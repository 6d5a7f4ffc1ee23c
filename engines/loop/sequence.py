"""The loop's own mutable record of one request. It never leaves the loop.

It knows tokens, positions and times; it holds no blocks (the cache does) and decides nothing.
"""

from __future__ import annotations

from enum import Enum
from typing import Protocol

from engines.admission import stop_ids
from engines.api import Request, RequestId, RequestStats, StallCause
from engines.loop.stalls import Instant, StepSums


class Phase(Enum):
    """What a request's time is spent on; the four add up to its end-to-end time."""

    QUEUE = 0
    PREFILL = 1
    DECODE = 2
    PREEMPTED = 3


class SequenceView(Protocol):
    """What a policy and a cache may read of a sequence.

    `num_known` tokens are prompt plus answer so far, the first `num_computed` of them have their
    keys and values in the cache, `num_remaining` are still to be computed. A row that computes
    all of them gets a next token. `max_len` is prompt + `max_tokens`, the longest it can get.
    """

    @property
    def request(self) -> Request: ...
    @property
    def request_id(self) -> RequestId: ...
    @property
    def tokens(self) -> list[int]: ...
    @property
    def arrival_index(self) -> int: ...
    @property
    def prompt_len(self) -> int: ...
    @property
    def max_len(self) -> int: ...
    @property
    def num_computed(self) -> int: ...
    @property
    def num_known(self) -> int: ...
    @property
    def num_remaining(self) -> int: ...
    @property
    def num_preemptions(self) -> int: ...
    @property
    def last_scheduled_step(self) -> int: ...
    @property
    def has_advanced(self) -> bool: ...


class Sequence:
    """See `SequenceView`; beside it the high-water mark, the clock of its phases and its stalls."""

    __slots__ = (
        "_away_from_s",
        "_away_until_s",
        "_gap_cause",
        "_last_prompts_s",
        "_longest_gap_s",
        "_mark",
        "_phase",
        "_phase_since_s",
        "_preempted",
        "_spent_s",
        "_steps",
        "arrival_index",
        "first_time_output",
        "first_time_prompt",
        "high_water",
        "last_scheduled_step",
        "last_token_s",
        "later_hit_tokens",
        "max_len",
        "min_len",
        "num_computed",
        "num_preemptions",
        "num_prefill_steps",
        "num_steps",
        "prefix_hit_tokens",
        "prompt_len",
        "request",
        "request_id",
        "stop_ids",
        "swapped_tokens",
        "tokens",
    )

    def __init__(
        self,
        request: Request,
        max_tokens: int,
        arrival_index: int,
        eos_token_ids: tuple[int, ...] = (),
        steps: StepSums | None = None,
    ) -> None:
        """`steps` are the run's; without them there are no steps to blame."""
        self.request = request
        self.stop_ids = stop_ids(request, eos_token_ids)
        self.request_id = request.request_id
        self.tokens = list(request.prompt_token_ids)
        self.prompt_len = len(self.tokens)
        self.max_len = self.prompt_len + max_tokens
        self.min_len = self.prompt_len + request.min_tokens
        self.arrival_index = arrival_index
        self.num_computed = 0
        self.high_water = 0
        self.num_preemptions = 0
        self.num_steps = 0
        self.num_prefill_steps = 0
        self.last_scheduled_step = -1
        self.prefix_hit_tokens: int | None = None
        self.later_hit_tokens = 0
        self.swapped_tokens = 0
        self.first_time_prompt = 0
        self.first_time_output = 0
        self.last_token_s: float | None = None
        self._mark = 0
        self._phase = Phase.QUEUE
        self._phase_since_s = request.scheduled_s
        self._spent_s = [0.0, 0.0, 0.0, 0.0]
        self._away_from_s: list[float] = []
        self._away_until_s: list[float] = []
        self._steps = StepSums() if steps is None else steps
        self._last_prompts_s = 0.0  # of the run's sums, at its last token
        self._preempted: Instant | None = None  # first since its last token
        self._longest_gap_s = 0.0
        self._gap_cause: StallCause | None = None

    @property
    def num_known(self) -> int:
        return len(self.tokens)

    @property
    def num_remaining(self) -> int:
        return len(self.tokens) - self.num_computed

    @property
    def num_output(self) -> int:
        return len(self.tokens) - self.prompt_len

    @property
    def has_advanced(self) -> bool:
        """Whether its high-water mark has risen since its last preemption, or since it came."""
        return self.high_water > self._mark

    def preempt(self, now_s: float, *, keeps_cache: bool) -> None:
        """Back to waiting: its progress is lost, unless it went to the host."""
        self.num_preemptions += 1
        self._mark = self.high_water
        if self._preempted is None:
            self._preempted = self._steps.now(now_s)
        self._away_from_s.append(now_s)
        if keeps_cache:
            self.swapped_tokens += self.num_computed
        else:
            self.num_computed = 0
        self._enter(Phase.PREEMPTED, now_s)

    def resume(self) -> None:
        """Its positions come back from the host."""
        self.swapped_tokens += self.num_computed

    def schedule(self, step: int, now_s: float) -> None:
        """It has work in this step, which starts at `now_s`."""
        self.num_steps += 1
        if self._phase is Phase.QUEUE or self._phase is Phase.PREEMPTED:
            if self._phase is Phase.PREEMPTED:
                self._away_until_s.append(now_s)
            self._enter(Phase.PREFILL if self.num_output == 0 else Phase.DECODE, now_s)

    def append(self, token_ids: list[int], now_s: float) -> None:
        """Tokens are delivered at `now_s`; call before `last_scheduled_step` moves on."""
        last_s = self.last_token_s
        if last_s is None:
            self._enter(Phase.DECODE, now_s)
            self.num_prefill_steps = self.num_steps
        elif now_s - last_s > self._longest_gap_s:
            self._longest_gap_s = now_s - last_s
            self._gap_cause = self._cause(last_s, now_s)
        self._preempted = None
        self._last_prompts_s = self._steps.prompts_s
        self.last_token_s = now_s
        self.tokens += token_ids

    def _cause(self, last_s: float, now_s: float) -> StallCause:
        last = Instant(last_s, self._last_prompts_s)
        if self._preempted is not None:
            return self._steps.cause_with_preemption(last, self._preempted, now_s)
        return self._steps.cause(last, self.last_scheduled_step, now_s)

    def stats(self, end_s: float) -> RequestStats:
        """Closes the phases at `end_s`."""
        if self._phase is Phase.PREEMPTED:
            self._away_until_s.append(end_s)
        self._enter(self._phase, end_s)
        queue_s, prefill_s, decode_s, preempted_s = self._spent_s
        return RequestStats(
            queue_s=queue_s,
            prefill_s=prefill_s,
            decode_s=decode_s,
            preempted_s=preempted_s,
            num_preemptions=self.num_preemptions,
            num_steps=self.num_steps,
            max_stall_cause=self._gap_cause,
            first_time_prompt=self.first_time_prompt,
            first_time_output=self.first_time_output,
            prefix_hit_tokens=self.prefix_hit_tokens,
            later_hit_tokens=self.later_hit_tokens,
            num_prefill_steps=self.num_prefill_steps if self.num_output else self.num_steps,
            preempted_from_s=tuple(self._away_from_s),
            preempted_until_s=tuple(self._away_until_s),
            swapped_tokens=self.swapped_tokens,
        )

    def _enter(self, phase: Phase, now_s: float) -> None:
        self._spent_s[self._phase.value] += now_s - self._phase_since_s
        self._phase = phase
        self._phase_since_s = now_s
