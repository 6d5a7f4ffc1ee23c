"""Equal outputs as a gate: each difference is judged by what the model says of the two tokens.

In float32 two answers may part at a near-tie only: both tokens within `TOLERANCE` of the best. In
half precision rounding alone parts answers, so differences are reported and fail nothing; only an
answer that ends where another goes on is a fault in every type. Loads no model and asks nobody.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from engines.api import Request, RequestId
from engines.judging import Judgement, Question
from harness.outputs.differences import Compared, Difference
from harness.records import CellKey

TOLERANCE: Final = 1e-4  # of the best logit's size, and at least so much
EXACT_TYPES: Final = ("float32", "float64")
Status = Literal["equal", "near-ties", "rounding", "different", "not judged", "nothing compared"]
Kind = Literal["near-tie", "rounding", "wrong token", "wrong length", "not judged"]


@dataclass(frozen=True, slots=True)
class Finding:
    """A difference and what became of it; `at_fault` are the cells that it speaks against."""

    difference: Difference
    kind: Kind
    at_fault: tuple[CellKey, ...] = ()
    judgement: Judgement | None = None


@dataclass(frozen=True, slots=True)
class OutputCheck:
    """What was compared and found. `trouble` says why something was not judged."""

    compared: Compared
    findings: tuple[Finding, ...]
    dtype: str
    trouble: str = ""

    @property
    def status(self) -> Status:
        kinds = {finding.kind for finding in self.findings}
        if kinds & {"wrong token", "wrong length"}:
            return "different"
        if "not judged" in kinds:
            return "not judged"
        if not self.compared.requests:
            return "nothing compared"
        if "rounding" in kinds:
            return "rounding"
        return "near-ties" if kinds else "equal"

    def of_kind(self, *kinds: Kind) -> list[Finding]:
        return [finding for finding in self.findings if finding.kind in kinds]


def questions_for(
    differences: Iterable[Difference], requests: Mapping[RequestId, Request]
) -> list[Question]:
    """What the model is to be asked, each question once."""
    asked = (_question(difference, requests[difference.request_id]) for difference in differences)
    return list(dict.fromkeys(question for question in asked if question is not None))


def check_outputs(
    compared: Compared,
    requests: Mapping[RequestId, Request],
    judgements: Mapping[Question, Judgement],
    dtype: str,
    trouble: str = "",
) -> OutputCheck:
    """Judges every difference."""
    findings = []
    for difference in compared.differences:
        question = _question(difference, requests[difference.request_id])
        judgement = None if question is None else judgements.get(question)
        findings.append(_judged(difference, judgement, is_exact=dtype in EXACT_TYPES))
    return OutputCheck(compared, tuple(findings), dtype, trouble)


def _judged(difference: Difference, judgement: Judgement | None, *, is_exact: bool) -> Finding:
    cells = (difference.reference, difference.other)
    if None in difference.tokens:
        return Finding(difference, "wrong length", cells)
    if judgement is None:
        return Finding(difference, "not judged")
    if not is_exact:
        return Finding(difference, "rounding", (), judgement)
    most = TOLERANCE * max(1.0, abs(judgement.best_logit))
    wrong = tuple(
        cell
        for cell, behind in zip(cells, judgement.behind, strict=True)
        if not behind <= most  # NaN is no near-tie
    )
    return Finding(difference, "wrong token" if wrong else "near-tie", wrong, judgement)


def _question(difference: Difference, request: Request) -> Question | None:
    """`None` where one answer had ended: no model can say which is right."""
    one, other = difference.tokens
    if one is None or other is None:
        return None
    return Question(
        request_id=request.request_id,
        context=request.prompt_token_ids + difference.common,
        candidates=(one, other),
        sampling=request.sampling,
    )
