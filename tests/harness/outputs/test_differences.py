"""Where answers part, on token ids alone."""

from __future__ import annotations

from dataclasses import replace

import pytest

from engines.api import EngineInfo, RequestStats, Status
from harness.outputs.differences import find_differences
from harness.records import CellKey, CellRecord, Defects, RequestRecord


def request(name: str, ids: tuple[int, ...] | None, status: Status = "ok") -> RequestRecord:
    return RequestRecord(
        request_id=name,
        label="",
        session=None,
        prompt_tokens=3,
        max_tokens=4,
        ignore_eos=True,
        scheduled_s=0.0,
        status=status,
        finish_reason="length",
        reason="",
        stats=RequestStats(),
        output_ids=ids,
    )


def cell(engine: str, answers: dict[str, tuple[int, ...] | None], number: int = 1) -> CellRecord:
    requests = tuple(request(name, ids) for name, ids in answers.items())
    info = EngineInfo(engine, {}, 64, 4)
    key = CellKey(engine, "load", number)
    return CellRecord(key, engine, info, requests, (), None, Defects(), 1.0)


def test_equal_answers_are_counted() -> None:
    answers = {"a": (1, 2, 3), "b": (4, 5)}
    compared = find_differences([cell("x", answers), cell("y", answers), cell("x", answers, 2)])
    assert compared.differences == ()
    assert (compared.cells, compared.requests, compared.tokens) == (3, 2, 10)


@pytest.mark.parametrize(
    ("one", "other", "common", "tokens"),
    [
        ((1, 2, 3), (9, 2, 3), (), (1, 9)),
        ((1, 2, 3), (1, 9, 3), (1,), (2, 9)),
        ((1, 2, 3), (1, 2, 9), (1, 2), (3, 9)),
        ((1, 2, 3), (1, 2), (1, 2), (3, None)),
        ((1, 2), (1, 2, 3), (1, 2), (None, 3)),
        ((1, 2, 3), (1, 9, 9, 9), (1,), (2, 9)),
    ],
)
def test_the_first_position_is_told(
    one: tuple[int, ...],
    other: tuple[int, ...],
    common: tuple[int, ...],
    tokens: tuple[int | None, int | None],
) -> None:
    compared = find_differences([cell("x", {"a": one}), cell("y", {"a": other})])
    (difference,) = compared.differences
    assert (difference.common, difference.tokens) == (common, tokens)
    assert difference.position == len(common)
    assert (difference.reference.engine, difference.other.engine) == ("x", "y")
    assert compared.tokens == len(common)


def test_the_first_cell_that_has_an_answer_is_the_reference() -> None:
    first, second = cell("x", {"b": (1,)}), cell("y", {"a": (7,), "b": (1,)})
    third = cell("z", {"a": (8,), "b": (2,)})
    compared = find_differences([first, second, third])
    told = [(d.request_id, d.reference.engine, d.other.engine) for d in compared.differences]
    assert told == [("a", "y", "z"), ("b", "x", "z")]
    assert compared.requests == 2


@pytest.mark.parametrize("status", ["failed", "cancelled", "rejected", "timeout"])
def test_only_answers_that_ended_well_are_compared(status: Status) -> None:
    requests = (request("a", (1,), status), request("b", None))
    broken = replace(cell("y", {}), requests=requests)
    compared = find_differences([cell("x", {"a": (1, 2), "b": (3,)}), broken])
    assert (compared.differences, compared.requests) == ((), 0)


def test_an_engine_that_does_not_know_token_ids_is_left_out_and_named() -> None:
    remote = cell("remote", {"a": (-1, -1)})
    compared = find_differences([cell("x", {"a": (1, 2)}), remote, cell("y", {"a": (1, 2)})])
    assert compared.untold == ("remote",)
    assert (compared.differences, compared.requests) == ((), 1)


def test_a_request_met_once_is_compared_with_nothing() -> None:
    assert find_differences([cell("x", {"a": (1,)})]).requests == 0
    assert find_differences([]).cells == 0
