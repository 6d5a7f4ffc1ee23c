"""How many rounds there are, and in which order engines run in them."""

from __future__ import annotations

from harness.run.rounds import RoundPlan, decide, engine_order

LABELS = ("a", "b", "c", "d")


def order(round_number: int, load_index: int = 0, seed: int = 0) -> tuple[str, ...]:
    return engine_order(LABELS, seed=seed, round_number=round_number, load_index=load_index)


def test_every_engine_runs_once_in_every_round() -> None:
    assert all(sorted(order(number)) == list(LABELS) for number in range(1, 20))


def test_order_repeats_for_a_seed_and_differs_between_rounds() -> None:
    assert [order(n) for n in range(1, 9)] == [order(n) for n in range(1, 9)]
    assert len({order(n) for n in range(1, 20)}) > 5
    assert len({order(1, seed=seed) for seed in range(20)}) > 5
    assert len({order(1, load_index=index) for index in range(20)}) > 5


def test_every_engine_comes_first_about_as_often() -> None:
    firsts = [order(number)[0] for number in range(1, 401)]
    assert all(70 <= firsts.count(label) <= 130 for label in LABELS)


def test_fixed_order_is_the_order_given() -> None:
    fixed = engine_order(LABELS, seed=3, round_number=2, load_index=1, shuffled=False)
    assert fixed == LABELS


def test_first_round_comes_whatever_the_budget() -> None:
    assert decide(RoundPlan(budget_s=1.0), [], elapsed_s=50.0).goes_on


def test_rounds_stop_where_another_would_pass_the_budget() -> None:
    plan = RoundPlan(budget_s=100.0, closing_s=5.0)
    first = decide(plan, [30.0], elapsed_s=35.0)
    assert (first.goes_on, first.expected) == (True, 3)
    last = decide(plan, [30.0, 30.0, 28.0], elapsed_s=93.0)
    assert not last.goes_on
    assert "another round of about 30 s would pass the budget of 100 s" in last.reason


def test_estimate_is_made_anew_from_the_longest_round() -> None:
    plan = RoundPlan(budget_s=100.0, closing_s=0.0)
    assert decide(plan, [10.0], elapsed_s=10.0).expected == 5
    assert decide(plan, [10.0, 45.0], elapsed_s=55.0).expected == 3


def test_five_rounds_are_the_most_by_default() -> None:
    plan = RoundPlan(budget_s=1000.0)
    assert decide(plan, [1.0], elapsed_s=1.0).expected == 5
    assert not decide(plan, [1.0] * 5, elapsed_s=5.0).goes_on


def test_repeats_decide_alone_without_a_budget() -> None:
    plan = RoundPlan(repeats=7)
    assert decide(plan, [100.0] * 6, elapsed_s=600.0).goes_on
    end = decide(plan, [100.0] * 7, elapsed_s=700.0)
    assert not end.goes_on
    assert "--repeats 7" in end.reason


def test_repeats_and_a_budget_stop_at_whichever_comes_first() -> None:
    plan = RoundPlan(repeats=3, budget_s=50.0, closing_s=0.0)
    assert not decide(plan, [1.0] * 3, elapsed_s=3.0).goes_on
    assert not decide(plan, [30.0], elapsed_s=30.0).goes_on


def test_looks_come_after_five_eight_and_twelve_rounds_and_twenty_are_the_most() -> None:
    plan = RoundPlan(until_ci=0.05)
    assert (plan.looks, plan.limit) == ((5, 8, 12), 20)
    assert decide(plan, [], 0.0).expected is None
    assert decide(plan, [1.0] * 19, 19.0).goes_on
    end = decide(plan, [1.0] * 20, 20.0, 0.2)
    assert (end.goes_on, end.reason) == (False, "20 rounds are the most with --until-ci")


def test_a_narrow_interval_ends_the_run_at_a_look_alone() -> None:
    plan = RoundPlan(until_ci=0.05)
    for done in range(1, 20):
        decision = decide(plan, [1.0] * done, float(done), reach=0.05)
        assert decision.goes_on == (done not in (5, 8, 12))
    assert "after 20 rounds" not in decision.reason
    narrow = decide(plan, [1.0] * 8, 8.0, reach=0.0312)
    assert narrow.reason == (
        "after 8 rounds the main ratios' intervals reach 3.1% or less, asked for with --until-ci 5%"
    )
    assert decide(plan, [1.0] * 8, 8.0, reach=0.0501).goes_on
    assert decide(plan, [1.0] * 8, 8.0).goes_on


def test_without_until_ci_nobody_looks() -> None:
    assert RoundPlan(repeats=20).looks == ()
    assert decide(RoundPlan(repeats=20), [1.0] * 8, 8.0, reach=0.0).goes_on


def test_repeats_and_a_budget_end_a_run_that_looks() -> None:
    assert RoundPlan(repeats=8, until_ci=0.05).looks == (5,)
    assert not decide(RoundPlan(repeats=8, until_ci=0.05), [1.0] * 8, 8.0, reach=0.2).goes_on
    within = RoundPlan(budget_s=60.0, until_ci=0.05, closing_s=0.0)
    going = decide(within, [10.0] * 5, 50.0, reach=0.2)
    assert (going.goes_on, going.expected) == (True, None)
    assert "budget of 60 s" in decide(within, [10.0] * 6, 60.0).reason
