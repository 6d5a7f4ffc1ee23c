"""Who gives way when memory runs out: one resident is chosen among those that may be preempted.

A choice only; whether it frees anything and what becomes of its work is the draft's matter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from engines.loop.kv.api import Trial
from engines.loop.sequence import SequenceView

Choice = Callable[[Iterable[SequenceView], Trial], SequenceView | None]


@dataclass(frozen=True, slots=True)
class Victim:
    """`choose` is given the candidates newest first and answers `None` when there are none.

    Of equals the newest gives way.
    """

    name: str
    choose: Choice


def _newest(candidates: Iterable[SequenceView], trial: Trial) -> SequenceView | None:
    return next(iter(candidates), None)


def _lowest_priority(candidates: Iterable[SequenceView], trial: Trial) -> SequenceView | None:
    return max(candidates, key=lambda sequence: sequence.request.priority, default=None)


def _least_progress(candidates: Iterable[SequenceView], trial: Trial) -> SequenceView | None:
    return min(candidates, key=_num_output, default=None)


def _num_output(sequence: SequenceView) -> int:
    return sequence.num_known - sequence.prompt_len


def _most_blocks(candidates: Iterable[SequenceView], trial: Trial) -> SequenceView | None:
    return max(candidates, key=trial.frees, default=None)


NEWEST: Final = Victim("newest", _newest)
LOWEST_PRIORITY: Final = Victim("lowest-priority", _lowest_priority)
LEAST_PROGRESS: Final = Victim("least-progress", _least_progress)
MOST_BLOCKS: Final = Victim("most-blocks", _most_blocks)
