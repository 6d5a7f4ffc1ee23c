"""Each bound at its edge, and what an unfinished request has already missed."""

from __future__ import annotations

import pytest

from harness.metrics import parse_goodput, summarise_cell
from harness.records import CellTrailer


def attainment(player, requests, events, text):
    return summarise_cell(player.cell(requests, events), parse_goodput(text)).attainment


@pytest.mark.parametrize(
    "text", ["ttft:500", "tpot:250", "itl:250", "stall:250", "e2el:1000", "ttft:500,e2el:1000"]
)
def test_a_bound_just_reached_is_met(player, text):
    events = player.answer("a", [0.5, 0.75, 1.0])
    assert attainment(player, [player.request("a")], events, text) == 1.0


@pytest.mark.parametrize("text", ["ttft:499", "tpot:249", "itl:249", "stall:249", "e2el:999"])
def test_a_bound_just_passed_is_missed(player, text):
    events = player.answer("a", [0.5, 0.75, 1.0])
    assert attainment(player, [player.request("a")], events, text) == 0.0


@pytest.mark.parametrize(("text", "good"), [("itl:249", 0.0), ("itl:251", 1.0), ("stall:1", 1.0)])
def test_an_answer_in_one_event_has_no_stall_and_an_itl_of_its_whole_time(player, text, good):
    events = [player.tokens(1.0, {"a": 4}), player.end(1.0, "a")]
    assert attainment(player, [player.request("a", out=4)], events, text) == good


@pytest.mark.parametrize("text", ["itl:1", "stall:1", "tpot:1"])
def test_an_answer_of_one_token_misses_no_bound_on_its_pace(player, text):
    assert attainment(player, [player.request("a", out=1)], player.answer("a", [9.0]), text) == 1.0


@pytest.mark.parametrize(
    ("text", "missed"),
    [
        ("e2el:8999", True),
        ("e2el:9001", False),
        ("ttft:1999", True),
        ("ttft:2000", False),
        ("stall:2999", True),  # between the two tokens
        ("stall:3999", True),  # since the last one
        ("stall:4001", False),
        ("itl:2999", True),
        ("itl:3001", False),
    ],
)
def test_what_an_unfinished_answer_has_missed_already(player, text, missed):
    events = [player.tokens(2.0, {"a": 1}), player.tokens(5.0, {"a": 1})]
    cell = player.cell([player.request("a")], events, CellTrailer(9.0, interrupted=True))
    result = summarise_cell(cell, parse_goodput(text))
    assert result.goodput_excluded == (0 if missed else 1)
    assert result.attainment == (0.0 if missed else None)


@pytest.mark.parametrize("text", ["stall:2999", "stall:3500"])
def test_a_gap_in_the_middle_is_missed_though_tokens_came_later(player, text):
    events = [player.tokens(t, {"a": 1}) for t in (1.0, 5.0, 8.9)]
    cell = player.cell([player.request("a", out=9)], events, CellTrailer(9.0, interrupted=True))
    assert summarise_cell(cell, parse_goodput(text)).goodput_excluded == 0


@pytest.mark.parametrize("status", ["failed", "rejected", "timeout"])
def test_what_the_run_did_not_cut_off_counts_as_offered(player, status):
    requests = [player.request("good", out=1), player.request("bad")]
    events = [*player.answer("good", [0.1]), player.end(0.2, "bad", status, "x")]
    result = summarise_cell(player.cell(requests, events), parse_goodput("ttft:500"))
    assert (result.attainment, result.goodput_excluded) == (0.5, 0)


@pytest.mark.parametrize(("text", "warns"), [("ttft:0.99", True), ("ttft:1", False)])
def test_a_bound_below_a_millisecond_is_warned_of(text, warns):
    assert bool(parse_goodput(text).warnings) is warns
