"""Judges tokens by the model alone: one sequence at a time, no cache, its own eager attention.

The scores are the engines' own (greedy: logits; else with the noise of the request), so a token
that an engine should have given is the best one here, up to rounding. Decides nothing: how close is
close enough is the asker's.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from engines.judging import Judgement, Question
from engines.loop.executors.sampling import noise_key, scores_of
from engines.models.load import LoadedModel, load_model
from engines.registry import BuildContext


def judge(context: BuildContext, questions: Sequence[Question]) -> list[Judgement]:
    """Loads the model and answers in the order of the questions.

    Raises `CbbenchError` for a model that cannot be loaded.
    """
    loaded = load_model(context, "eager")
    return [_judge(loaded, question) for question in questions]


def _judge(loaded: LoadedModel, question: Question) -> Judgement:
    input_ids = torch.tensor([question.context], device=loaded.device)
    with torch.inference_mode():
        output = loaded.model(input_ids=input_ids, use_cache=False, logits_to_keep=1)
    own = output.logits[0, -1]
    logits = own.float()
    sampling = question.sampling
    name = question.request_id if sampling.noise_id is None else sampling.noise_id
    key = noise_key(sampling.seed, name, len(question.context))
    scores = scores_of(logits, sampling, key) * (sampling.temperature or 1.0)
    best = int(torch.argmax(scores))
    return Judgement(
        best=best,
        best_logit=float(logits[best]),
        behind=tuple(float(scores[best] - scores[token]) for token in question.candidates),
        resolution=_resolution(float(logits[best]), own.dtype),
    )


def _resolution(value: float, dtype: torch.dtype) -> float:
    """The distance to the next number of this type."""
    _, exponent = math.frexp(value)
    return math.ldexp(torch.finfo(dtype).eps, exponent - 1)
