"""What a steady window takes in, and when an engine has kept up with its arrivals."""

from __future__ import annotations

from dataclasses import replace

import pytest

from engines.api import RequestStats
from harness.metrics.rates import kept_up, load_kind, steady_window


def test_a_window_takes_its_end_in_and_its_start_not(player):
    requests = [player.request(f"r{i}", at=float(i), out=1) for i in range(11)]
    events = [event for i in range(11) for event in player.answer(f"r{i}", [float(i)])]
    window = steady_window(player.cell(requests, events))
    assert (window.start_s, window.end_s) == (1.0, 9.0)
    assert window.output_throughput_tok_s == pytest.approx(8 / 8)  # at 2, 3, ... 9


def test_tokens_of_requests_that_failed_are_no_throughput_of_a_window(player):
    requests = [player.request("good", out=2), player.request("bad", at=10.0, out=9)]
    events = [
        *player.answer("good", [4.0, 5.0]),
        player.tokens(6.0, {"bad": 9}),
        player.end(7.0, "bad", "failed", "x"),
    ]
    assert steady_window(player.cell(requests, events)).output_throughput_tok_s == 2 / 8


def test_the_window_of_a_closed_loop_ends_with_the_last_arrival(player):
    requests = [player.request("a", out=2), player.request("b", at=3.0, out=2)]
    stats = RequestStats(queue_s=1.0)
    events = [*player.answer("a", [1.0, 3.0], stats), *player.answer("b", [5.0, 8.0], stats)]
    cell = replace(player.cell(requests, events), closed_loop=True)
    assert load_kind(cell) == "closed"
    window = steady_window(cell)
    assert (window.start_s, window.end_s) == (0.0, 3.0)
    assert window.output_throughput_tok_s == pytest.approx(2 / 3)


def test_the_queue_is_empty_when_the_last_request_is_planned_not_when_it_answers(player):
    requests = [player.request("a", out=1), player.request("b", out=1)]
    events = [
        *player.answer("a", [1.0], RequestStats(queue_s=0.0)),
        *player.answer("b", [9.0], RequestStats(queue_s=4.0)),
    ]
    assert steady_window(player.cell(requests, events)).end_s == 4.0


def queueing_cell(player, number: int, last_end_s: float, failures: int = 0):
    """One arrival a second; each ends after 0.1 s, but the last at `last_end_s`."""
    requests = [player.request(f"r{i:02}", at=float(i), out=1) for i in range(number)]
    events = []
    for i in range(number):
        end_s = last_end_s if i == number - 1 else i + 0.1
        if i < failures:
            events.append(player.end(end_s, f"r{i:02}", "failed", "x"))
        else:
            events += player.answer(f"r{i:02}", [end_s])
    return player.cell(requests, events)


@pytest.mark.parametrize(("last_end_s", "expected"), [(9.9, True), (10.2, False)])
def test_kept_up_means_that_the_schedule_is_nine_tenths_of_the_time(player, last_end_s, expected):
    # arrivals over 9 s and a drain of 0.1 s that nobody can avoid
    assert kept_up(queueing_cell(player, 10, last_end_s)) is expected


@pytest.mark.parametrize(("failures", "expected"), [(1, True), (2, False)])
def test_who_fails_more_than_a_tenth_has_not_kept_up(player, failures, expected):
    assert kept_up(queueing_cell(player, 10, 9.1, failures)) is expected


@pytest.mark.parametrize(("number", "expected"), [(4, None), (5, True)])
def test_fewer_than_five_requests_tell_nothing(player, number, expected):
    assert kept_up(queueing_cell(player, number, number - 0.9)) is expected


def test_all_at_once_cannot_be_kept_up_with(player):
    requests = [player.request(f"r{i}", out=1) for i in range(9)]
    events = [event for i in range(9) for event in player.answer(f"r{i}", [1.0])]
    assert kept_up(player.cell(requests, events)) is None
