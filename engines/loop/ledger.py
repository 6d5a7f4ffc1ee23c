"""The token ledger: what every executed position of a step was for.

The definitions are METRICS.md's. A position is computed for the first time when it lies at or
above the request's high-water mark; below it, it is recomputed.
"""

from __future__ import annotations

from engines.loop.sequence import Sequence


class StepLedger:
    """Counts of one step, in positions."""

    __slots__ = (
        "output",
        "padding",
        "past_stop",
        "prefill_tokens",
        "prompt",
        "recomputed",
        "rejected_draft",
        "rows",
    )

    def __init__(self, padding: int) -> None:
        self.prompt = 0
        self.output = 0
        self.recomputed = 0
        self.padding = padding
        self.rejected_draft = 0
        self.past_stop = 0
        self.prefill_tokens = 0
        self.rows = 0

    def charge(self, sequence: Sequence, n: int) -> None:
        """`n` known tokens of `sequence` were computed; call before `num_computed` moves on."""
        start = sequence.num_computed
        end = start + n
        fresh_from = max(start, sequence.high_water)
        first_time = max(0, end - fresh_from)
        prompt = max(0, min(end, sequence.prompt_len) - fresh_from)
        self.rows += 1
        self.recomputed += n - first_time
        self.prompt += prompt
        self.output += first_time - prompt
        sequence.first_time_prompt += prompt
        sequence.first_time_output += first_time - prompt
        if n > 1 or end <= sequence.prompt_len:
            self.prefill_tokens += n

    def charge_drafts(self, sequence: Sequence, drafted: int, accepted: int, kept: int) -> None:
        """Of `drafted` positions `accepted` were right; `kept` tokens stay before the stop.

        Each kept token but the last was fed, so `kept - 1` of the accepted positions were useful.
        """
        useful = min(accepted, kept - 1)
        self.rejected_draft += drafted - accepted
        self.past_stop += accepted - useful
        self.output += useful
        sequence.first_time_output += useful
