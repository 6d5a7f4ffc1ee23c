"""Orca, prefill-first and chunked side by side: what a prompt does to running answers."""

from __future__ import annotations

from itertools import pairwise

import pytest

from engines.loop.executors.cost_model import StepCost
from engines.loop.policies.chunked import ChunkedPolicy
from engines.loop.policies.orca import OrcaPolicy
from engines.loop.policies.prefill_first import PrefillFirstPolicy

COST = StepCost(per_step_s=1.0, per_token_s=0.1)


def longest_gap_s(run, name):
    return max(b - a for a, b in pairwise(run.times()[name]))


@pytest.mark.parametrize(
    ("policy", "gap_s"),
    [
        (ChunkedPolicy(4, 32), 1.0 + 3.2),  # one full step
        (OrcaPolicy(4), 1.0 + 0.1 * 201),  # the whole prompt beside it
        (PrefillFirstPolicy(4, 1000), (1.0 + 0.1 * 200) + 1.2),  # the prompt alone, then both
    ],
)
def test_how_long_a_long_prompt_freezes_a_running_answer(lab, request_of, policy, gap_s):
    requests = [request_of("decode", 4, 60), request_of("prompt", 200, 2, scheduled_s=5.0)]
    run = lab(policy, cost=COST).play(requests)
    assert longest_gap_s(run, "decode") == pytest.approx(gap_s)


def test_orca_reserves_the_longest_answer_and_preempts_nobody(lab, request_of):
    requests = [request_of(f"r{i}", 4, 13) for i in range(8)]
    run = lab(OrcaPolicy(8), num_blocks=40, block_size=1).play(requests)
    assert run.rows[0].blocks_used == 32
    assert run.rows[0].num_running == 2
    assert sum(row.preemptions for row in run.rows) == 0


def test_orca_lets_one_join_at_any_step(lab, request_of):
    requests = [request_of("a", 4, 10), request_of("b", 4, 2, scheduled_s=3.5)]
    run = lab(OrcaPolicy(2)).play(requests)
    assert run.times()["b"] == [5.0, 6.0]
    assert run.times()["a"] == [float(i) for i in range(1, 11)]


def test_prefill_first_computes_prompts_alone(lab, request_of):
    requests = [
        request_of("a", 4, 10),
        *(request_of(f"b{i}", 8, 2, scheduled_s=2.5) for i in range(3)),
    ]
    rows = lab(PrefillFirstPolicy(8, 16)).play(requests).rows
    kinds = [(row.prefill_tokens, row.decode_tokens) for row in rows[:7]]
    assert kinds == [(4, 0), (0, 1), (0, 1), (16, 0), (8, 0), (0, 4), (0, 1)]


def test_a_resident_waits_for_as_many_prompt_steps_as_there_are_slots(lab, request_of):
    """The starvation bound of prefill-first: each prompt fills a budget; eight slots."""
    requests = [
        request_of("a", 8, 10),
        *(request_of(f"b{i}", 16, 2, scheduled_s=1.5) for i in range(20)),
    ]
    run = lab(PrefillFirstPolicy(8, 17)).play(requests)
    assert longest_gap_s(run, "a") == 7 + 1


@pytest.mark.parametrize("prompts", [10, 30])
def test_prompts_that_end_at_once_hold_a_resident_up_without_bound(lab, request_of, prompts):
    """Prefill-first with two slots: each prompt fills a budget and ends with its first token."""
    requests = [
        request_of("a", 8, 10),
        *(request_of(f"b{i}", 16, 1, scheduled_s=1.5) for i in range(prompts)),
    ]
    run = lab(PrefillFirstPolicy(2, 17)).play(requests)
    assert longest_gap_s(run, "a") == prompts + 1


def test_a_whole_prompt_beyond_the_budget_is_turned_away_with_both_numbers(lab, request_of):
    run = lab(PrefillFirstPolicy(4, 32)).play([request_of("a", 40, 2), request_of("b", 4, 2)])
    assert run.finishes["a"].status == "rejected"
    assert "42 tokens exceed the 33" in run.finishes["a"].reason
    assert run.finishes["b"].status == "ok"


def test_prefill_first_with_more_residents_than_budget_takes_turns(lab, request_of):
    requests = [request_of(f"r{i}", 1, 4) for i in range(6)]
    run = lab(PrefillFirstPolicy(6, 4)).play(requests)
    assert [len(run.tokens()[f"r{i}"]) for i in range(6)] == [4] * 6
    assert max(row.positions for row in run.rows) <= 4
    assert max(longest_gap_s(run, f"r{i}") for i in range(6)) <= 3
