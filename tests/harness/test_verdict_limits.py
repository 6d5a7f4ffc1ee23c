"""Every limit of the verdict, just within and just beyond."""

from __future__ import annotations

from dataclasses import replace

import pytest

from engines.api import RequestStats, StepEvents
from harness.metrics import Goodput, summarise_cell
from harness.records import CellTrailer
from harness.verdict import Evidence, judge_cell

GOOD = CellTrailer(10.0, warmup_requests=2, others_cpu_share=0.0, clock_drift_s=0.0)


@pytest.fixture
def sound(player):
    """100 prompt tokens and 3 of output in three steps of two seconds."""
    stats = RequestStats(0.0, 2.0, 4.0, 0.0, 0, 3, None, 100, 2, 0)
    rows = [
        player.step(1, 0.0, 2.0, prompt=100),
        player.step(2, 2.0, 4.0, output=1),
        player.step(3, 4.0, 6.0, output=1),
    ]
    events = [
        *(StepEvents(row.end_s, ("a",), ((1,),), (), row) for row in rows),
        player.end(6.0, "a", stats=stats),
    ]
    return player.cell([player.request("a", prompt=100, out=3)], events, trailer=GOOD)


def reasons(cell, measured_s: float = 6.0, simulated: bool = False) -> str:
    result = summarise_cell(cell, Goodput())
    return " | ".join(judge_cell(Evidence(cell, result, measured_s, simulated)).reasons)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"others_cpu_share": 0.10}, ""),
        ({"others_cpu_share": 0.101}, "others used or stole"),
        ({"clock_drift_s": 0.1}, ""),
        ({"clock_drift_s": 0.101}, "parted by 101 ms"),
        ({"clock_drift_s": -0.101}, "parted by 101 ms"),
    ],
)
def test_limits_of_the_trailer(sound, change, words):
    told = reasons(replace(sound, trailer=replace(GOOD, **change)))
    assert words in told
    assert bool(told) == bool(words)


@pytest.mark.parametrize(("measured_s", "told"), [(5.0, False), (4.99, True)])
def test_five_seconds_are_enough(sound, measured_s, told):
    assert ("were measured over all rounds" in reasons(sound, measured_s)) is told


def test_a_simulation_needs_neither_time_nor_a_warm_up(sound):
    cold = replace(sound, trailer=replace(GOOD, warmup_requests=0))
    assert reasons(cold, measured_s=0.1, simulated=True) == ""


@pytest.mark.parametrize(("hits", "told"), [(1, False), (2, True)])
def test_one_prompt_token_in_a_hundred_may_come_from_a_cache(sound, hits, told):
    (request,) = sound.requests
    stats = replace(request.stats, prefix_hit_tokens=hits, first_time_prompt=100 - hits)
    rows = (replace(sound.steps[0], prompt=100 - hits), *sound.steps[1:])
    cell = replace(sound, requests=(replace(request, stats=stats),), steps=rows)
    assert ("meant to be cold" in reasons(cell)) is told


@pytest.mark.parametrize(
    ("middle_s", "told"), [(2.24, False), (2.4, True), (1.76, False), (1.6, True)]
)
def test_littles_law_may_be_off_by_one_in_twenty_either_way(sound, middle_s, told):
    """`middle_s` request-seconds are counted in the middle step, which has two of them."""
    first, middle, last = sound.steps
    cut_s = 2.0 + abs(middle_s - 2.0)
    odd = replace(middle, end_s=cut_s, num_running=2 if middle_s > 2 else 0)
    rest = replace(middle, start_s=cut_s, output=0)
    cell = replace(sound, steps=(first, odd, rest, last))
    assert ("Little's law" in reasons(cell)) is told


@pytest.mark.parametrize(
    ("median_ttft_s", "lag_s", "told"),
    [
        (0.010, 0.0009, False),  # a floor of 1 ms
        (0.010, 0.0011, True),
        (0.060, 0.0029, False),  # 5% of the median
        (0.060, 0.0031, True),
        (9.0, 0.0050, False),  # never more than 5 ms
        (9.0, 0.0051, True),
    ],
)
def test_a_client_may_lag_by_the_smaller_of_its_limits(player, median_ttft_s, lag_s, told):
    events = player.answer("a", [median_ttft_s], RequestStats(sent_s=lag_s))
    cell = player.cell([player.request("a", out=1)], events, GOOD)
    assert ("sent late" in reasons(cell)) is told


@pytest.mark.parametrize(("asked", "told"), [(3, False), (2, True), (4, False)])
def test_an_answer_that_may_stop_is_never_longer_than_asked(sound, asked, told):
    (request,) = sound.requests
    may_stop = replace(request, max_tokens=asked, ignore_eos=False)
    assert ("number of output tokens" in reasons(replace(sound, requests=(may_stop,)))) is told


@pytest.mark.parametrize(("asked", "told"), [(3, False), (2, True), (4, True), (None, False)])
def test_a_forced_answer_is_exactly_as_long_as_asked(sound, asked, told):
    (request,) = sound.requests
    forced = replace(request, max_tokens=asked)
    assert ("number of output tokens" in reasons(replace(sound, requests=(forced,)))) is told


LATER_S = (1.0, 1.02, 0.98, 1.01, 0.99)


def with_mean_e2e(result, mean_s: float | None, **changes):
    return replace(result, e2e_s=replace(result.e2e_s, mean=mean_s), **changes)


def cold_start(cell, first_s, later, simulated: bool = False, **changes) -> bool:
    result = summarise_cell(cell, Goodput())
    first = with_mean_e2e(result, first_s, **changes)
    others = tuple(with_mean_e2e(result, mean_s) for mean_s in later)
    verdict = judge_cell(Evidence(cell, first, 6.0, simulated, others))
    return "the first round was a cold one" in " | ".join(verdict.reasons)


@pytest.mark.parametrize(
    ("first_s", "told"), [(1.0, False), (1.09, False), (1.12, False), (1.2, True), (0.5, False)]
)
def test_a_first_round_that_later_rounds_do_not_explain_is_a_cold_one(sound, first_s, told):
    """Spread of 1.6%: five later rounds explain up to 1.13 once in a thousand times."""
    assert cold_start(sound, first_s, LATER_S) is told


@pytest.mark.parametrize(("first_s", "told"), [(1.09, False), (1.11, True)])
def test_a_tenth_is_the_least_that_is_told_however_steady_the_rounds(sound, first_s, told):
    assert cold_start(sound, first_s, [1.0] * 5) is told


def test_noisy_later_rounds_explain_a_slow_first_one(sound):
    assert not cold_start(sound, 1.5, (0.8, 1.2, 1.0, 1.3, 0.9))
    assert cold_start(sound, 1.5, LATER_S)


@pytest.mark.parametrize("later", [(), (1.0,), (None, None, None)])
def test_too_few_later_rounds_judge_no_first_one(sound, later):
    assert not cold_start(sound, 99.0, later)


def test_a_first_round_is_set_against_rounds_alike_alone(sound):
    assert not cold_start(sound, 2.0, LATER_S, simulated=True)
    assert not cold_start(sound, 2.0, LATER_S, interrupted=True)
    assert not cold_start(sound, None, LATER_S)
    counts = summarise_cell(sound, Goodput()).counts
    assert not cold_start(sound, 2.0, LATER_S, counts=replace(counts, ok=0, failed=1))
