"""When a waiting request may come in: what memory must be there for it, and how much it takes.

Every rule reserves at least the tokens known so far, so that whoever comes in can also go on: a
request that was preempted computes something new before it can be preempted again.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Protocol

from engines.loop.kv.api import Trial
from engines.loop.sequence import SequenceView


class Admission(Protocol):
    """One rule. `residents` are those who will be there with it, in any order."""

    @property
    def name(self) -> str: ...

    def reserve(self, sequence: SequenceView) -> int:
        """Positions that it takes at once."""
        ...

    def admit(
        self, sequence: SequenceView, residents: Iterable[SequenceView], trial: Trial
    ) -> int | None:
        """As `Trial.admit`; `None`, with nothing changed, when the rule says no."""
        ...


@dataclass(frozen=True, slots=True)
class WholePrompt:
    """The whole prompt must fit; answers grow into what is free."""

    name: str = "prompt"

    def reserve(self, sequence: SequenceView) -> int:
        return sequence.num_known

    def admit(
        self, sequence: SequenceView, residents: Iterable[SequenceView], trial: Trial
    ) -> int | None:
        return trial.admit(sequence, sequence.num_known)


@dataclass(frozen=True, slots=True)
class Watermark:
    """The whole prompt must fit and leave `share` of all blocks free, as in the older vLLM.

    A request that would be alone comes in without: otherwise the largest never could.
    """

    share: float
    name: str = "watermark"

    def reserve(self, sequence: SequenceView) -> int:
        return sequence.num_known

    def admit(
        self, sequence: SequenceView, residents: Iterable[SequenceView], trial: Trial
    ) -> int | None:
        is_alone = next(iter(residents), None) is None
        keep_free = 0 if is_alone else math.ceil(self.share * trial.num_blocks)
        return trial.admit(sequence, sequence.num_known, keep_free=keep_free)


@dataclass(frozen=True, slots=True)
class FullReservation:
    """Room for the longest answer is taken at once, as Orca does; nobody is ever preempted."""

    name: str = "full"

    def reserve(self, sequence: SequenceView) -> int:
        return sequence.max_len - 1

    def admit(
        self, sequence: SequenceView, residents: Iterable[SequenceView], trial: Trial
    ) -> int | None:
        return trial.admit(sequence, sequence.max_len - 1)


@dataclass(frozen=True, slots=True)
class PredictedPeak:
    """The peak of memory must fit, as LightLLM predicts it from remaining lengths.

    If everybody got a token a step, memory would peak when somebody ends: with the residents in
    order of remaining length, longest first, the i-th ends when each of the i before it has grown
    by what the i-th has left. A last block of each may be half empty, so the positions are rounded
    up by that. Steps that a budget withholds make it a prediction, not a promise.
    """

    name: str = "peak"

    def reserve(self, sequence: SequenceView) -> int:
        return sequence.num_known

    def admit(
        self, sequence: SequenceView, residents: Iterable[SequenceView], trial: Trial
    ) -> int | None:
        if _peak_blocks([sequence, *residents], trial) > trial.num_blocks:
            return None
        return trial.admit(sequence, sequence.num_known)


def _peak_blocks(sequences: Iterable[SequenceView], trial: Trial) -> int:
    """An upper bound in blocks; a sequence alone is counted exactly."""
    left_and_held = sorted((s.max_len - 1 - s.num_known, s.num_known) for s in sequences)
    peak = held = 0
    for alive, (left, known) in enumerate(reversed(left_and_held), 1):
        held += known
        blocks = trial.blocks_for(held + left * alive) + (alive - 1)
        peak = max(peak, blocks)
    return peak


WHOLE_PROMPT: Final = WholePrompt()
