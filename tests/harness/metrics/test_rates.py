"""Rates, windows and classes, with numbers worked out by hand."""

from __future__ import annotations

import pytest

from engines.api import RequestStats
from harness.metrics import Goodput, summarise_cell
from harness.metrics.rates import kept_up, load_kind, steady_window

NO_SLO = Goodput()


def test_makespan_runs_from_the_first_arrival_to_the_last_token_of_any(player):
    requests = [player.request("a", at=1.0, prompt=5), player.request("b", at=2.0)]
    events = [
        *player.answer("a", [1.5, 2.0]),
        player.tokens(5.0, {"b": 1}),
        player.end(6.0, "b", "failed", "broke"),
    ]
    result = summarise_cell(player.cell(requests, events), NO_SLO)
    assert result.makespan_s == pytest.approx(4.0)
    assert result.request_throughput_req_s == pytest.approx(1 / 4)
    assert result.output_throughput_tok_s == pytest.approx(2 / 4)
    assert result.total_throughput_tok_s == pytest.approx(7 / 4)


def test_no_time_at_all_gives_no_rate_instead_of_infinity(player):
    result = summarise_cell(
        player.cell([player.request("a", out=1)], player.answer("a", [0.0])), NO_SLO
    )
    assert result.output_throughput_tok_s is None


def test_steady_window_is_the_middle_of_the_schedule(player):
    requests = [player.request(f"r{i}", at=float(i), out=1) for i in range(11)]
    events = [event for i in range(11) for event in player.answer(f"r{i}", [i + 0.5])]
    window = steady_window(player.cell(requests, events))
    assert window is not None
    assert (window.start_s, window.end_s) == (1.0, 9.0)
    assert window.output_throughput_tok_s == pytest.approx(8 / 8)


def test_steady_window_of_all_at_once_ends_with_the_queue(player):
    requests = [player.request(name) for name in "ab"]
    events = [
        *player.answer("a", [1.0, 2.0, 3.0], RequestStats(queue_s=0.0)),
        *player.answer("b", [2.5, 5.0], RequestStats(queue_s=2.0)),
    ]
    cell = player.cell(requests, events)
    assert load_kind(cell) == "at_once"
    window = steady_window(cell)
    assert window is not None
    assert (window.end_s, window.output_throughput_tok_s) == (2.0, 1.0)


@pytest.mark.parametrize(("service_s", "expected"), [(0.5, True), (2.0, False)])
def test_an_engine_keeps_up_when_work_ends_soon_after_arrivals(player, service_s, expected):
    requests = [player.request(f"r{i:02}", at=float(i), out=1) for i in range(40)]
    events, free_s = [], 0.0
    for i in range(40):
        free_s = max(free_s, float(i)) + service_s
        events += player.answer(f"r{i:02}", [free_s])
    assert kept_up(player.cell(requests, events)) is expected


def test_a_long_last_answer_is_no_sign_of_a_queue(player):
    requests = [player.request(f"r{i}", at=float(i)) for i in range(10)]
    events = [event for i in range(9) for event in player.answer(f"r{i}", [i + 0.1, i + 0.2])]
    events += player.answer("r9", [9.1, 14.0])
    assert kept_up(player.cell(requests, events)) is True


def test_short_and_long_part_at_the_median_of_what_was_scheduled(player):
    requests = [player.request(f"r{i}", prompt=10 * i + 1, out=2) for i in range(4)]
    events = [event for i in range(4) for event in player.answer(f"r{i}", [1.0, 2.0 + i])]
    result = summarise_cell(player.cell(requests, events), NO_SLO)
    assert {name: group.counts.ok for name, group in result.classes.items()} == {
        "short": 2,
        "long": 2,
    }
    assert result.classes["long"].e2e_s.max == 5.0
    assert result.classes["short"].e2e_s.max == 3.0


def test_a_label_names_the_class(player):
    requests = [player.request("a", label="chat"), player.request("b", label="code")]
    events = [*player.answer("a", [1.0]), *player.answer("b", [1.0])]
    result = summarise_cell(player.cell(requests, events), NO_SLO)
    assert list(result.classes) == ["chat", "code"]
