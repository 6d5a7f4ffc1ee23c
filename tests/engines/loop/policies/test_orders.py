"""Who comes first, who gives way for it, and how far fairness and starvation go."""

from __future__ import annotations

import pytest

from engines.loop.policies.chunked import ChunkedPolicy
from engines.loop.policies.orca import OrcaPolicy
from engines.loop.policies.orders import PRIORITY, SHORTEST_JOB, SHORTEST_REMAINING, Fair
from engines.loop.policies.prefill_first import PrefillFirstPolicy
from engines.loop.policies.rules import Rules
from engines.loop.policies.static import StaticPolicy


def one_at_a_time(order):
    return ChunkedPolicy(1, 64, rules=Rules(order=order))


def starts(run):
    """Request ids by the time of their first token."""
    return sorted(run.times(), key=lambda name: run.times()[name][0])


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        (PRIORITY, ["first", "urgent", "short", "long"]),
        (SHORTEST_JOB, ["first", "short", "urgent", "long"]),
        (SHORTEST_REMAINING, ["first", "short", "urgent", "long"]),
    ],
)
def test_the_waiting_come_in_by_rank(lab, request_of, order, expected):
    requests = [
        request_of("first", 2, 1, priority=-9),
        request_of("long", 9, 9, priority=2),
        request_of("short", 3, 2, priority=1),
        request_of("urgent", 5, 5, priority=0),
    ]
    assert starts(lab(one_at_a_time(order)).play(requests)) == expected


@pytest.mark.parametrize("policy", [StaticPolicy(2, SHORTEST_JOB), OrcaPolicy(2, SHORTEST_JOB)])
def test_every_policy_takes_an_order(lab, request_of, policy):
    lengths = {"a": 9, "b": 2, "c": 7, "d": 3}
    requests = [request_of(name, n, n) for name, n in lengths.items()]
    assert starts(lab(policy).play(requests))[:2] == ["b", "d"]


@pytest.mark.parametrize("order", [PRIORITY, SHORTEST_REMAINING])
@pytest.mark.parametrize("policy", [ChunkedPolicy, PrefillFirstPolicy])
def test_a_better_ranked_newcomer_takes_the_place_of_a_resident(lab, request_of, policy, order):
    """Its answer is not lost, and nobody is put out for an equal."""
    requests = [
        request_of("low", 4, 9, priority=5),
        request_of("high", 4, 2, priority=1, scheduled_s=3.0),
        request_of("equal", 4, 9, priority=5, scheduled_s=3.0),
    ]
    run = lab(policy(1, 64, rules=Rules(order=order))).play(requests)
    ends = run.end_s()
    assert ends["high"] < ends["low"] < ends["equal"]
    stats = {name: finish.stats.num_preemptions for name, finish in run.finishes.items()}
    assert stats == {"low": 1, "high": 0, "equal": 0}
    assert len(run.tokens()["low"]) == 9


def test_shortest_remaining_lets_one_finish_that_is_nearly_done(lab, request_of):
    """Nine tokens, seven done: what remains is shorter than the newcomer."""
    requests = [request_of("near", 1, 9), request_of("new", 2, 2, scheduled_s=7.5)]
    run = lab(one_at_a_time(SHORTEST_REMAINING)).play(requests)
    assert run.end_s()["near"] < run.end_s()["new"]


def test_memory_is_taken_from_the_last_in_rank(lab, request_of):
    """Both came together; the pool holds one and a half of them."""
    requests = [request_of("low", 4, 8, priority=5), request_of("high", 4, 8, priority=1)]
    rules = Rules(order=PRIORITY)
    run = lab(ChunkedPolicy(4, 64, rules=rules), num_blocks=16, block_size=1).play(requests)
    assert run.finishes["high"].stats.num_preemptions == 0
    assert run.finishes["low"].stats.num_preemptions >= 1


def test_a_scarce_budget_goes_to_the_best_ranks(lab, request_of):
    requests = [request_of(f"r{i}", 1, 6, priority=9 - i) for i in range(6)]
    rows = lab(ChunkedPolicy(6, 2, rules=Rules(order=PRIORITY))).play(requests)
    ends = rows.end_s()
    assert sorted(ends, key=ends.__getitem__)[:2] == ["r4", "r5"] or ends["r5"] == ends["r4"]
    assert max(ends["r4"], ends["r5"]) < min(ends[f"r{i}"] for i in range(4))


def test_one_that_takes_a_slot_leaves_the_decodes_their_tokens(lab, request_of):
    """Three slots and a budget of three: it gets the token of the one it put out."""
    requests = [
        request_of("a", 1, 20, priority=1),
        request_of("b", 1, 20, priority=1),
        request_of("low", 1, 20, priority=5),
        request_of("new", 4, 2, priority=0, scheduled_s=4.5),
    ]
    run = lab(ChunkedPolicy(3, 3, rules=Rules(order=PRIORITY))).play(requests)
    for name in "ab":
        assert run.times()[name] == [1.0 + i for i in range(20)]
    assert run.times()["new"] == [9.0, 10.0]


def test_a_prompt_of_higher_rank_goes_before_a_running_prompt(lab, request_of):
    """A long prompt is half computed when an urgent one comes: the urgent one has the budget."""
    requests = [
        request_of("long", 40, 1, priority=5),
        request_of("urgent", 16, 1, priority=1, scheduled_s=0.5),
    ]
    run = lab(ChunkedPolicy(4, 8, rules=Rules(order=PRIORITY))).play(requests)
    assert run.end_s()["urgent"] == 3.0  # one step of the other, then two of its own


def mixed_groups(request_of, by):
    """A heavy group that came first, and a light one behind it."""
    named = {"class": "request_class", "client": "session"}[by]
    heavy = [request_of(f"h{i}", 8, 4, **{named: "heavy"}) for i in range(6)]
    light = [request_of(f"l{i}", 8, 4, **{named: "light"}) for i in range(2)]
    return [*heavy, *light]


@pytest.mark.parametrize("by", ["class", "client"])
def test_fair_alternates_between_groups(lab, request_of, by):
    run = lab(one_at_a_time(Fair(by))).play(mixed_groups(request_of, by))
    assert starts(run)[:4] == ["h0", "l0", "h1", "l1"]


def test_first_come_does_not_alternate(lab, request_of):
    run = lab(ChunkedPolicy(1, 64)).play(mixed_groups(request_of, "class"))
    assert starts(run)[:4] == ["h0", "h1", "h2", "h3"]


def test_idling_earns_a_group_no_credit(lab, request_of):
    """A group that comes late alternates from then on; it is not owed what others were served."""
    early = [request_of(f"e{i}", 8, 4, request_class="early") for i in range(8)]
    late = [request_of(f"l{i}", 8, 4, request_class="late", scheduled_s=15.0) for i in range(3)]
    run = lab(one_at_a_time(Fair())).play([*early, *late])
    order = [name for name in starts(run) if run.times()[name][0] > 15.0]
    assert [name[0] for name in order[:6]] in (list("elelel"), list("lelele"))


EARLY = {"cbrief": (2, "c", 0.0), "along": (90, "a", 0.5)}  # answer, group, arrival


def order_after(lab, request_of, policy, late):
    """Groups in the order of their first tokens, of the `late` ones: group, number, arrival."""
    early = [
        request_of(name, 2, answer, request_class=group, scheduled_s=at_s)
        for name, (answer, group, at_s) in EARLY.items()
    ]
    comers = [
        request_of(f"{group}{i}", 4, 4, request_class=group, scheduled_s=at_s)
        for group, count, at_s in late
        for i in range(count)
    ]
    run = lab(policy).play([*early, *comers])
    return "".join(name[0] for name in starts(run) if name not in EARLY)


@pytest.mark.parametrize("late_s", [80.5, 150.5])
def test_a_group_that_left_and_comes_back_is_owed_nothing(lab, request_of, late_s):
    """`a` decoded alone meanwhile, and nobody had to be chosen; or all had been idle since."""
    policy = ChunkedPolicy(2, 64, rules=Rules(order=Fair()))
    order = order_after(lab, request_of, policy, [("a", 6, late_s), ("c", 6, late_s)])
    assert abs(order[:6].count("c") - 3) <= 1, order


def test_a_group_that_comes_back_alone_starts_where_the_last_ones_left(lab, request_of):
    """All had left; `c` returns first, and `a`, which was served more, when it has begun."""
    order = order_after(lab, request_of, one_at_a_time(Fair()), [("c", 8, 150.0), ("a", 4, 151.5)])
    assert abs(order[:6].count("c") - 3) <= 1, order


def test_fair_shares_bound_how_far_groups_drift_apart(lab, request_of):
    """While both have requests waiting, neither is more than one request's positions ahead."""
    a = [request_of(f"a{i}", 3, 3, request_class="a") for i in range(12)]
    b = [request_of(f"b{i}", 11, 5, request_class="b") for i in range(12)]
    run = lab(one_at_a_time(Fair())).play([*a, *b])
    served = {"a": 0, "b": 0}
    for name in starts(run):
        group = name[0]
        assert served[group] <= min(served.values()) + 15 + 5, "the other was due"
        served[group] += 5 if group == "a" else 15
        if min(int(n[1:]) for n in [name]) == 11:
            break


def test_a_scarce_budget_is_no_excuse_to_run_a_worse_one(lab, request_of):
    """One token a step: the low one is decoding when the high one comes."""
    requests = [
        request_of("low", 1, 9, priority=5),
        request_of("high", 3, 3, priority=1, scheduled_s=2.5),
    ]
    run = lab(ChunkedPolicy(2, 1, rules=Rules(order=PRIORITY))).play(requests)
    assert run.end_s()["high"] == 3.0 + 5
    assert run.end_s()["low"] == 9 + 5


def test_a_victim_that_would_free_nothing_is_passed_over(lab, request_of, answer_of):
    """All three blocks of the low one are shared by the high one, which needs a fifth."""
    low = request_of("low", (1, 2, 3), 2, priority=9)
    high = request_of("high", (1, 2, 3, 9), 1 + 1, priority=1, scheduled_s=2.5)
    world = lab(
        ChunkedPolicy(2, 1, rules=Rules(order=PRIORITY)),
        num_blocks=5,
        block_size=1,
        prefix_caching=True,
    )
    late = request_of("late", (1, 2, 3, 9, 9), 1, priority=0, scheduled_s=3.5)
    run = world.play([low, high, late])
    assert run.tokens() == {r.request_id: answer_of(r) for r in (low, high, late)}
    assert world.cache.free_blocks == 5


def in_memory_of_ten(lab, request_of, policy, *, wanted, preemption="recompute"):
    """`a` is the most urgent and `c` the least; `new`, a prompt of `wanted`, comes second."""
    requests = [
        request_of("a", 3, 4, priority=0),
        request_of("b", 2, 2, priority=5),
        request_of("c", 2, 2, priority=6),
        request_of("new", wanted, 1, priority=1, scheduled_s=0.5),
    ]
    rules = Rules(order=PRIORITY, preemption=preemption)
    return lab(policy(8, 64, rules=rules), num_blocks=10, block_size=1).play(requests)


@pytest.mark.parametrize("preemption", ["recompute", "swap"])
@pytest.mark.parametrize("policy", [ChunkedPolicy, PrefillFirstPolicy])
def test_nobody_is_put_out_for_one_who_would_not_fit_even_then(lab, request_of, policy, preemption):
    run = in_memory_of_ten(lab, request_of, policy, wanted=8, preemption=preemption)
    assert sum(row.preemptions for row in run.rows) == 0
    assert max(run.end_s()["b"], run.end_s()["c"]) <= run.times()["new"][0]


@pytest.mark.parametrize("preemption", ["recompute", "swap"])
@pytest.mark.parametrize(
    ("policy", "wanted", "out"),
    [
        (ChunkedPolicy, 3, {"c"}),
        (ChunkedPolicy, 4, {"b", "c"}),
        (PrefillFirstPolicy, 5, {"c"}),
        (PrefillFirstPolicy, 6, {"b", "c"}),
    ],
)
def test_as_many_leave_for_a_better_one_as_it_takes(
    lab, request_of, policy, preemption, wanted, out
):
    """When it comes, `a`, `b` and `c` hold 3, 2 and 2; under chunked each takes one more first."""
    run = in_memory_of_ten(lab, request_of, policy, wanted=wanted, preemption=preemption)
    stats = {name: finish.stats.num_preemptions for name, finish in run.finishes.items()}
    assert {name for name, count in stats.items() if count} == out
    assert run.rows[1].preemptions == len(out)
    assert run.times()["new"] == [2.0]


def test_what_a_victim_was_given_in_the_step_does_not_count_for_the_one_it_leaves_for(
    lab, request_of, answer_of
):
    """`low` decodes into the block of a prefix that `high` is looking for, and is then put out."""
    requests = [
        request_of("low", (1, 2, 3), 5, priority=9),
        request_of("x", (50,), 2, priority=0),
        request_of("y", (60,), 2, priority=0),
        request_of("high", (1, 2, 3, 9), 4, priority=1, scheduled_s=0.5),
        request_of("top", tuple(range(100, 106)), 2, priority=0, scheduled_s=1.5),
    ]
    policy = ChunkedPolicy(6, 6, rules=Rules(order=PRIORITY))
    world = lab(policy, num_blocks=8, block_size=1, prefix_caching=True)
    run = world.play(requests)
    assert run.tokens() == {r.request_id: answer_of(r) for r in requests}
    assert world.cache.free_blocks == 8
