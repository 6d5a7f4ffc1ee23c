"""Which ratio of a run is its main one, and how far its interval reaches."""

from __future__ import annotations

import math

import pytest

from harness.looks import LOOK_CONFIDENCE
from harness.results.file import close_run, summarise_so_far
from harness.results.saturation import main_comparisons, widest_reach
from harness.results.values import RunFile

PACES_S = (1.0, 1.1, 1.05, 0.95, 1.02)
OPEN = {"name": "open", "request_rate": 0.001, "max_concurrency": None}
AT_ONCE = {"name": "all", "request_rate": "inf", "max_concurrency": None}


def play(player, loads, engines=("a", "b"), rounds=5) -> dict[str, object]:
    """Loads by name, each with the times at which its six requests arrive."""
    for load, arrivals_s in loads.items():
        for engine in engines:
            for number in range(1, rounds + 1):
                pace_s = PACES_S[number - 1] * (1.1 if engine == "b" else 1.0) ** number
                requests = [player.request(f"r{at}", at=at, out=2) for at in arrivals_s]
                events = [
                    event
                    for r in requests
                    for event in player.answer(
                        r.request_id, [r.scheduled_s + pace_s, r.scheduled_s + 2 * pace_s]
                    )
                ]
                player.record(requests, events, engine=engine, load=load, number=number)
    return {"engine_order": list(engines), "loads": [OPEN, AT_ONCE]}


ALL_AT_ONCE = {"all": [0.0] * 1}
SPREAD = {"open": [0.0, 100.0, 200.0, 300.0, 400.0, 500.0]}


def main_of(run: RunFile) -> list[tuple[str, str, str, str]]:
    found = main_comparisons(run, run.labels())
    return [(item.baseline, item.engine, item.load, item.metric) for item in found]


def test_at_saturation_it_is_output_throughput_and_the_lower_load_does_not_count(player):
    run = close_run(player.folder, play(player, ALL_AT_ONCE | SPREAD), {})
    assert main_of(run) == [("a", "b", "all", "output_throughput_tok_s")]


def test_where_nothing_saturates_it_is_median_e2e(player):
    run = close_run(player.folder, play(player, SPREAD), {})
    assert main_of(run) == [("a", "b", "open", "e2e_s.p50")]


def test_every_pair_has_its_own_and_engines_that_fell_out_have_none(player):
    run = close_run(player.folder, play(player, ALL_AT_ONCE, ("a", "b", "c")), {})
    assert {(one, other) for one, other, _, _ in main_of(run)} == {("a", "b"), ("a", "c")}
    standing = main_comparisons(run, ["a", "c"])
    assert [(item.baseline, item.engine) for item in standing] == [("a", "c")]


def test_the_reach_is_that_of_the_widest_interval(player):
    run = close_run(player.folder, play(player, ALL_AT_ONCE, ("a", "b", "c")), {})
    found = main_comparisons(run, run.labels())
    reaches = [item.high / item.ratio - 1 for item in found]
    assert widest_reach(found) == max(reaches) > min(reaches) >= 0


def test_without_an_interval_nothing_is_narrow(player):
    run = close_run(player.folder, play(player, ALL_AT_ONCE, rounds=4), {})
    assert widest_reach(main_comparisons(run, run.labels())) == math.inf
    assert widest_reach([]) == math.inf


@pytest.mark.parametrize(("until_ci", "confidence"), [(None, 0.95), (0.05, LOOK_CONFIDENCE)])
def test_rounds_that_ended_at_a_look_have_wider_intervals_everywhere(player, until_ci, confidence):
    settings = play(player, ALL_AT_ONCE) | {"until_ci": until_ci}
    so_far = summarise_so_far(player.folder, settings)
    assert not (player.folder / "run.json").exists()
    closed = close_run(player.folder, settings, {})
    assert so_far.comparisons == closed.comparisons
    assert {item.confidence for item in closed.comparisons} == {confidence}
    report = (player.folder / "report.md").read_text()
    assert ("each interval is widened" in report) == (until_ci is not None)
    plain = close_run(player.folder, settings | {"until_ci": None}, {})
    for one, other in zip(closed.comparisons, plain.comparisons, strict=True):
        if one.low is not None and one.low < one.high:
            assert (one.high / one.low > other.high / other.low) == (until_ci is not None)
