"""What is asked of a model about a token that two engines disagree on, and what it answers.

Values only, so that a parent process can ask without loading torch; `engines.models.teacher`
answers.
"""

from __future__ import annotations

from dataclasses import dataclass

from engines.api import GREEDY, RequestId, Sampling


@dataclass(frozen=True, slots=True)
class Question:
    """Which of `candidates` should follow `context`: a prompt and the answer until then."""

    request_id: RequestId
    context: tuple[int, ...]
    candidates: tuple[int, ...]
    sampling: Sampling = GREEDY


@dataclass(frozen=True, slots=True)
class Judgement:
    """`behind[i]` is how far candidate i's score lies behind the best one's, in logits.

    `best_logit` is the best token's own. `resolution` is the distance of two numbers of its size
    that the model's type can tell apart.
    """

    best: int
    best_logit: float
    behind: tuple[float, ...]
    resolution: float
