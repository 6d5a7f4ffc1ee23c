"""What becomes of a difference: near-tie, fault, rounding, or nobody could tell."""

from __future__ import annotations

import json
import math

import pytest

from engines.api import Request, Sampling
from engines.judging import Judgement, Question
from harness.outputs.differences import Compared, Difference
from harness.outputs.findings import OutputCheck, check_outputs, questions_for
from harness.outputs.words import fault_sentences, sentence, to_json
from harness.records import CellKey

X, Y, Z = (CellKey(name, "load", 1) for name in "xyz")
SAMPLED = Sampling(temperature=0.7, seed=3)
REQUESTS = {
    "a": Request("a", (10, 11), 4),
    "b": Request("b", (12,), 4, sampling=SAMPLED),
    "c": Request("c", (13,), 4),
}


def parted(name: str, *tokens: int | None, other: CellKey = Y, common: tuple[int, ...] = (5, 6)):
    one, two = tokens
    return Difference(name, X, other, common, (one, two))


def judged(
    *behind: float, best_logit: float = 1.0, best: int = 1, resolution: float = 1e-7
) -> Judgement:
    return Judgement(best, best_logit, behind, resolution)


def check(
    differences: list[Difference],
    *judgements: Judgement,
    dtype: str = "float32",
    trouble: str = "",
    untold: tuple[str, ...] = (),
    requests: int = 3,
) -> OutputCheck:
    """`judgements` answer the questions in their order."""
    questions = questions_for(differences, REQUESTS)
    compared = Compared(2, requests, 40, tuple(differences), untold)
    answers = dict(zip(questions, judgements, strict=bool(judgements)))
    return check_outputs(compared, REQUESTS, answers, dtype, trouble)


def test_a_question_is_the_prompt_and_the_answer_until_the_difference() -> None:
    differences = [parted("a", 1, 2), parted("b", 3, 4, common=()), parted("a", 1, 2, other=Z)]
    assert questions_for(differences, REQUESTS) == [
        Question("a", (10, 11, 5, 6), (1, 2)),
        Question("b", (12,), (3, 4), SAMPLED),
    ]
    assert questions_for([parted("a", 1, None)], REQUESTS) == []


@pytest.mark.parametrize(
    ("behind", "best_logit", "kind", "at_fault"),
    [
        ((0.0, 0.9e-4), 0.5, "near-tie", ()),
        ((0.0, 1.1e-4), 0.5, "wrong token", (Y,)),
        ((0.0, 0.9e-3), 10.0, "near-tie", ()),
        ((0.0, 1.1e-3), -10.0, "wrong token", (Y,)),
        ((2.0, 0.0), 1.0, "wrong token", (X,)),
        ((2.0, 1.0), 1.0, "wrong token", (X, Y)),
        ((0.5e-4, 0.6e-4), 1.0, "near-tie", ()),
        ((0.0, math.nan), 1.0, "wrong token", (Y,)),
        ((0.0, math.inf), 1.0, "wrong token", (Y,)),
    ],
)
def test_in_float32_both_tokens_must_be_nearly_the_best(
    behind: tuple[float, float], best_logit: float, kind: str, at_fault: tuple[CellKey, ...]
) -> None:
    found = check([parted("a", 1, 2)], judged(*behind, best_logit=best_logit))
    (finding,) = found.findings
    assert (finding.kind, finding.at_fault) == (kind, at_fault)
    assert found.status == ("different" if at_fault else "near-ties")
    assert set(fault_sentences(found)) == set(at_fault)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_half_precision_fails_nothing_and_tells_the_largest_difference(dtype: str) -> None:
    differences = [parted("a", 1, 2), parted("c", 1, 2)]
    found = check(differences, judged(0.0, 0.02), judged(0.5, 0.0), dtype=dtype)
    assert (found.status, fault_sentences(found)) == ("rounding", {})
    assert "(reported, no failure): 2 requests parted" in sentence(found)
    assert "largest logit difference at such a place is 0.5" in sentence(found)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_an_answer_that_ends_where_another_goes_on_is_a_fault_in_every_type(dtype: str) -> None:
    found = check([parted("a", 7, None)], dtype=dtype)
    assert found.status == "different"
    assert sentence(found) == (
        "outputs differ: request 'a', answer position 2 (from 0): x (load, round 1) gave token 7, "
        "y (load, round 1) had ended"
    )
    assert "differ in length" in fault_sentences(found)[Y]


def test_the_sentence_names_request_position_tokens_and_what_the_model_says() -> None:
    differences = [parted("a", 1, 2), parted("c", 1, 2), parted("c", 1, 2, other=Z)]
    found = check(differences, judged(0.0, 3.25), judged(0.0, 4.0))
    assert sentence(found) == (
        "outputs differ: request 'a', answer position 2 (from 0): x (load, round 1) gave token 1, "
        "y (load, round 1) gave token 2; the model alone gives 1, 2 lies 3.25 behind (its type "
        "tells 1e-07 apart there); 1 more request differs"
    )
    faults = fault_sentences(found)
    assert list(faults) == [Y, Z]
    assert faults[Y].endswith("; 1 more request differs")
    assert faults[Z].startswith("its answers are not the model's: request 'c'")
    assert "more" not in faults[Z]


def test_a_fault_outweighs_what_could_not_be_judged_and_near_ties() -> None:
    differences = [parted("a", 1, 2), parted("b", 1, 2), parted("c", 1, None)]
    assert check(differences, judged(0.0, 0.0), judged(0.0, 0.0)).status == "different"
    assert check(differences).status == "different"


def test_differences_without_a_judgement_are_no_pass() -> None:
    found = check([parted("a", 1, 2)], trouble="no such model")
    assert found.status == "not judged"
    assert "could not be judged (no such model): request 'a', answer" in sentence(found)
    assert fault_sentences(found) == {}


def test_equal_answers_and_none_to_compare() -> None:
    assert sentence(check([])) == "outputs are equal: 3 requests in 2 cells, 40 tokens"
    nothing = check([], requests=0, untold=("remote",))
    assert nothing.status == "nothing compared"
    assert sentence(nothing).endswith("; remote tells no token ids")


def test_what_stands_in_run_json_is_strict_json_with_faults_first() -> None:
    near = [parted("a", 1, 2, common=(i,)) for i in range(25)]
    wrong = parted("c", 1, 2)
    found = check([*near, wrong], *(judged(0.0, 0.0) for _ in near), judged(0.0, 3.0))
    told = json.loads(json.dumps(to_json(found), allow_nan=False))
    assert (told["status"], told["num_differences"]) == ("different", 26)
    assert len(told["differences"]) == 20
    first = told["differences"][0]
    assert (first["kind"], first["request_id"], first["position"]) == ("wrong token", "c", 2)
    assert first["tokens"] == [1, 2]
    assert first["behind"] == [0.0, 3.0]
    assert told["faults"] == [
        {"engine": "y", "load": "load", "round": 1, "sentence": fault_sentences(found)[Y]}
    ]
    assert told["tolerance"] == 1e-4
    assert to_json(check([], dtype="bfloat16"))["tolerance"] is None
