"""When a batch starts, how large it is and who is turned away: on numbers alone."""

from __future__ import annotations

import math

import pytest

from engines.api import BLOCKED, END, Request
from engines.generate_batching import BatchRule, Bounds, Done, Start, WaitUntil, decide

STATIC = BatchRule(4, None)
WINDOW = BatchRule(4, 0.5)
ONE = BatchRule(1, 0.0)


def ask(rule, waiting, now_s, due, fits=None, just_ended=False):
    """`waiting` are the arrivals of those who wait."""
    oldest_s = waiting[0] if waiting else 0.0
    fits = len(waiting) if fits is None else fits
    return decide(rule, len(waiting), oldest_s, now_s, due, fits, batch_just_ended=just_ended)


@pytest.mark.parametrize("rule", [STATIC, WINDOW, ONE])
def test_nobody_waiting_means_wait_or_done(rule: BatchRule):
    assert ask(rule, [], 1.0, END) == Done()
    assert ask(rule, [], 1.0, 3.0) == WaitUntil(3.0)
    assert ask(rule, [], 1.0, BLOCKED) == WaitUntil(math.inf)


@pytest.mark.parametrize("rule", [STATIC, WINDOW])
@pytest.mark.parametrize("due", [END, BLOCKED, 9.0])
def test_a_full_batch_starts_and_no_batch_is_larger(rule: BatchRule, due):
    assert ask(rule, [1.0] * 4, 1.0, due) == Start(4)
    assert ask(rule, [1.0] * 7, 1.0, due) == Start(4)


def test_static_has_no_timer():
    assert ask(STATIC, [0.0] * 3, 1e6, 2e6) == WaitUntil(2e6)
    assert ask(STATIC, [0.0] * 3, 1e6, math.inf) == WaitUntil(math.inf)


@pytest.mark.parametrize("due", [END, BLOCKED])
def test_static_starts_a_partial_batch_when_nobody_can_come(due):
    assert ask(STATIC, [0.0] * 3, 0.0, due) == Start(3)


@pytest.mark.parametrize("due", [END, BLOCKED, 100.0])
def test_a_window_counts_from_the_oldest_arrival(due):
    assert ask(WINDOW, [1.0, 1.4], 1.4, due) == WaitUntil(1.5)
    assert ask(WINDOW, [1.0, 1.4], 1.5, due) == Start(2)
    assert ask(WINDOW, [1.0, 1.4], 7.0, due) == Start(2)


def test_what_queued_behind_a_batch_waits_for_no_window():
    assert ask(WINDOW, [1.0, 1.4], 1.4, 9.0, just_ended=True) == Start(2)
    assert ask(STATIC, [1.0, 1.4], 1.4, 9.0, just_ended=True) == WaitUntil(9.0)
    assert ask(WINDOW, [], 1.4, 9.0, just_ended=True) == WaitUntil(9.0)


def test_a_window_looks_again_at_the_next_arrival():
    assert ask(WINDOW, [1.0], 1.1, 1.2) == WaitUntil(1.2)


def test_without_delay_all_that_wait_go_together():
    assert ask(BatchRule(4, 0.0), [1.0], 1.0, 1.5) == Start(1)
    assert ask(BatchRule(4, 0.0), [1.5] * 4, 3.0, END) == Start(4)


def test_sequential_runs_one():
    assert ask(ONE, [1.0] * 3, 1.0, END) == Start(1)


@pytest.mark.parametrize("rule", [STATIC, WINDOW])
def test_a_batch_that_memory_keeps_from_growing_is_full(rule: BatchRule):
    assert ask(rule, [1.0] * 3, 1.0, 5.0, fits=2) == Start(2)
    assert ask(rule, [1.0] * 9, 1.0, 5.0, fits=2) == Start(2)


def request(prompt: int, max_tokens: int | None) -> Request:
    return Request("r", tuple(range(prompt)), max_tokens)


def test_a_batch_takes_rows_times_widest_prompt_and_longest_answer():
    mixed = [request(10, 3), request(2, 11), request(5, 5)]
    # one row: 10 + 3 - 1 = 12; two: 2 x (10 + 11 - 1) = 40; three: 60
    assert Bounds(100, 60).fits(mixed) == 3
    assert Bounds(100, 59).fits(mixed) == 2
    assert Bounds(100, 40).fits(mixed) == 2
    assert Bounds(100, 39).fits(mixed) == 1
    assert Bounds(100, 12).fits(mixed) == 1
    assert Bounds(100, None).fits(mixed) == 3
    assert Bounds(100, 60).fits([]) == 0


@pytest.mark.parametrize(
    ("prompt", "max_tokens", "numbers"),
    [
        (65, 1, ["65", "66", "64"]),
        (60, 10, ["60", "10", "70", "64"]),
        (64, 1, ["65", "64"]),
        (0, 4, ["empty"]),
        (5, 0, ["max_tokens is 0"]),
        (64, None, ["65", "64"]),
        (40, 12, ["40", "12", "51", "50"]),
    ],
)
def test_what_can_never_run_is_refused_with_the_numbers(prompt, max_tokens, numbers):
    reason = Bounds(64, 50).refusal(request(prompt, max_tokens))
    assert all(number in reason for number in numbers), reason


@pytest.mark.parametrize(("prompt", "max_tokens"), [(63, 1), (1, 63), (40, 24), (63, None)])
def test_what_just_fits_the_context_is_served(prompt, max_tokens):
    assert Bounds(64, None).refusal(request(prompt, max_tokens)) == ""


def test_what_just_fits_the_memory_is_served():
    assert Bounds(64, 50).refusal(request(40, 11)) == ""


def test_no_bound_of_its_own_means_up_to_context_and_memory():
    assert Bounds(64, None).max_tokens(request(10, None)) == 54
    assert Bounds(64, 1000).max_tokens(request(10, None)) == 54
    assert Bounds(64, 50).max_tokens(request(10, None)) == 41
    assert Bounds(64, 50).refusal(request(10, None)) == ""
