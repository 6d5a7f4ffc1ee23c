"""What must fit before somebody comes in, and who gives way when memory runs out."""

from __future__ import annotations

import pytest

from engines.loop.policies.admission import FullReservation, PredictedPeak, Watermark
from engines.loop.policies.chunked import ChunkedPolicy
from engines.loop.policies.prefill_first import PrefillFirstPolicy
from engines.loop.policies.rules import Rules
from engines.loop.policies.victims import LEAST_PROGRESS, LOWEST_PRIORITY, MOST_BLOCKS, NEWEST

POLICIES = [ChunkedPolicy, PrefillFirstPolicy]


def residents_at_first(lab, request_of, rules, policy=ChunkedPolicy):
    """Of eight requests of 4 + 12 in a pool of 40 positions: those in the first step, and all."""
    requests = [request_of(f"r{i}", 4, 13) for i in range(8)]
    run = lab(policy(8, 64, rules=rules), num_blocks=40, block_size=1).play(requests)
    assert all(finish.status == "ok" for finish in run.finishes.values())
    return run.rows[0].num_running, sum(row.preemptions for row in run.rows)


@pytest.mark.parametrize("policy", POLICIES)
def test_each_rule_lets_in_as_many_as_it_says(lab, request_of, policy):
    """Prompts of 4: eight fit 40; with a quarter left free seven; reserved whole (16) two."""
    of = residents_at_first
    assert of(lab, request_of, Rules(), policy)[0] == 8
    assert of(lab, request_of, Rules(admission=Watermark(0.25)), policy)[0] == 7
    assert of(lab, request_of, Rules(admission=FullReservation()), policy) == (2, 0)
    assert of(lab, request_of, Rules(admission=PredictedPeak()), policy) == (2, 0)


def test_the_predicted_peak_lets_in_what_full_reservation_does_not(lab, request_of):
    """One is nearly done when the other grows: 16 + 16 positions never meet in 20 blocks."""
    requests = [request_of("a", 12, 2), request_of("b", 2, 13)]
    for admission, together in ((FullReservation(), 1), (PredictedPeak(), 2)):
        rules = Rules(admission=admission)
        run = lab(ChunkedPolicy(8, 64, rules=rules), num_blocks=20, block_size=1).play(requests)
        assert run.rows[0].num_running == together
        assert sum(row.preemptions for row in run.rows) == 0


def test_a_watermark_never_locks_out_one_who_is_alone(lab, request_of):
    rules = Rules(admission=Watermark(0.9))
    run = lab(ChunkedPolicy(8, 64, rules=rules), num_blocks=10, block_size=1).play(
        [request_of("a", 8, 2)]
    )
    assert run.finishes["a"].status == "ok"


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize(
    ("victim", "expected"),
    [(NEWEST, "c"), (LOWEST_PRIORITY, "b"), (LEAST_PROGRESS, "c"), (MOST_BLOCKS, "a")],
)
def test_the_victim_is_the_one_that_the_rule_names(lab, request_of, policy, victim, expected):
    """`a` holds most, `b` is the least urgent, `c` came last, has produced least."""
    requests = [
        request_of("a", 12, 20, priority=1),
        request_of("b", 4, 20, priority=7),
        request_of("c", 4, 20, priority=3, scheduled_s=2.5),
    ]
    rules = Rules(victim=victim)
    run = lab(policy(8, 64, rules=rules), num_blocks=40, block_size=1).play(requests)
    first = next(row for row in run.rows if row.preemptions)
    before = {
        name: sum(1 for time_s in times if time_s <= first.start_s)
        for name, times in run.times().items()
    }
    during = {name for name, times in run.times().items() if first.end_s in times}
    (out,) = {name for name in before if name not in during}
    assert out == expected


@pytest.mark.parametrize("policy", POLICIES)
def test_swapped_requests_come_back_with_what_they_had(lab, request_of, answer_of, policy):
    """Nothing is computed twice, and answers do not change."""
    requests = [request_of(f"r{i}", 4, 12) for i in range(4)]
    rules = Rules(preemption="swap")
    world = lab(policy(8, 64, rules=rules), num_blocks=36, block_size=1)
    run = world.play(requests)
    assert sum(row.preemptions for row in run.rows) > 0
    assert sum(row.recomputed for row in run.rows) == 0
    assert run.tokens() == {request.request_id: answer_of(request) for request in requests}
    assert world.cache.free_blocks == 36


@pytest.mark.parametrize("policy", POLICIES)
def test_nobody_is_let_in_before_one_who_was_swapped_out(lab, request_of, policy):
    requests = [request_of(f"r{i}", 4, 12) for i in range(6)]
    rules = Rules(preemption="swap")
    run = lab(policy(4, 64, rules=rules), num_blocks=30, block_size=1).play(requests)
    firsts = [run.times()[f"r{i}"][0] for i in range(6)]
    assert firsts == sorted(firsts)
    assert max(f.stats.num_preemptions for f in run.finishes.values()) > 0


def test_a_running_answer_does_not_wait_for_an_older_one_that_is_computed_again(lab, request_of):
    """The older one comes back with more than a step's budget to compute, before it in order."""
    requests = [
        request_of("older", 9, 8),
        request_of("brief", 6, 2, scheduled_s=1.0),
        request_of("answer", 5, 9, scheduled_s=1.0),
    ]
    rules = Rules(victim=MOST_BLOCKS)
    run = lab(ChunkedPolicy(4, 6, rules=rules), num_blocks=22, block_size=1).play(requests)
    assert run.finishes["older"].stats.num_preemptions == 2
    times = run.times()["answer"]
    assert times == [times[0] + i for i in range(9)]
