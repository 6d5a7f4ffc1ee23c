"""Which rounds a comparison takes, and what it says of the others and of other differences."""

from __future__ import annotations

import pytest

from harness.records import CellTrailer
from harness.results.file import close_run
from harness.results.values import Comparison, RunFile
from harness.show.report import comparison_text, finding, report_text

WHOLE = CellTrailer(end_s=0.0, warmup_requests=1)
UNFINISHED = {
    "no trailer": None,
    "interrupted": CellTrailer(end_s=0.0, interrupted=True),
    "broken": CellTrailer(end_s=0.0, error="it broke"),
}
STATIC = ("static", {"max_batch_size": 16})
CHUNKED = ("continuous", {"policy": "chunked", "max_num_seqs": 16})


def play(player, engine, number, pace_s, trailer=WHOLE, kind=CHUNKED, slots=4) -> None:
    requests = [player.request(f"r{i}", out=3) for i in range(4)]
    events = []
    for request in requests:
        events += player.answer(request.request_id, [pace_s, 2 * pace_s, 3 * pace_s])
    info = player.info(*kind, slots=slots)
    player.record(requests, events, engine=engine, number=number, info=info, trailer=trailer)


def close(player) -> RunFile:
    return close_run(player.folder, {"engine_order": ["a", "b"]}, {})


def compared(run: RunFile, metric: str = "ttft_s.p50") -> Comparison:
    (found,) = (c for c in run.comparisons if c.metric == metric and c.request_class is None)
    return found


@pytest.mark.parametrize("trailer", UNFINISHED.values(), ids=UNFINISHED)
@pytest.mark.parametrize("engine", ["a", "b"])
def test_an_unfinished_round_is_left_out_of_ratios_and_tables_and_said(player, trailer, engine):
    for number in range(1, 6):
        play(player, "a", number, 2.0)
        play(player, "b", number, 1.0)
    for label in ("a", "b"):
        play(player, label, 6, 77.0, trailer if label == engine else WHOLE)
    run = close(player)
    pair = compared(run)
    assert (pair.rounds, pair.baseline_value, pair.engine_value) == (5, 2.0, 1.0)
    assert (pair.ratio, pair.low, pair.high) == pytest.approx((0.5, 0.5, 0.5))
    assert pair.note == "1 unfinished round left out"
    assert compared(run, "ttft_s by request").note.endswith("; 1 unfinished round left out")
    text = comparison_text(run)
    assert f"{engine}: 1 unfinished round left out." in text
    assert "5 rounds; 1 unfinished round left out)" in text
    rows = [line for line in report_text(run).splitlines() if line.startswith(f"| `{engine}` |")]
    assert "77" not in rows[0]
    assert rows[0].count("24/24") == 1


def test_a_round_in_which_only_one_engine_was_run_is_left_out_and_said(player):
    for number in (1, 2):
        play(player, "a", number, 2.0)
        play(player, "b", number, 1.0)
    play(player, "a", 3, 2.0, UNFINISHED["interrupted"])
    assert compared(close(player)).note == "2 rounds, no interval; 1 unfinished round left out"


@pytest.mark.parametrize("trailer", UNFINISHED.values(), ids=UNFINISHED)
def test_where_no_round_ended_what_there_is_is_kept_and_marked(player, trailer):
    play(player, "a", 1, 2.0)
    play(player, "b", 1, 1.0, trailer)
    run = close(player)
    pair = compared(run)
    assert (pair.rounds, pair.ratio, pair.note) == (1, 0.5, "one round; only 1 unfinished round")
    assert "b: only 1 unfinished round." in comparison_text(run)
    assert "a: " not in comparison_text(run)


def test_one_engine_interrupted_in_its_first_round_still_shows_its_numbers(player):
    play(player, "a", 1, 2.0, UNFINISHED["interrupted"])
    run = close_run(player.folder, {}, {})
    assert "2000" in comparison_text(run)
    assert "only 1 unfinished round" in report_text(run)


def test_two_engines_without_one_cause_are_told_with_what_else_differs(player):
    play(player, "a", 1, 2.0, kind=STATIC, slots=16)
    play(player, "b", 1, 1.0, kind=CHUNKED, slots=32)
    run = close(player)
    assert compared(run).kind == "engines"
    assert compared(run).also_different == ("rows a step (16 and 32)",)
    assert "They also differ in rows a step (16 and 32)." in " ".join(finding(run))


def test_a_policy_that_differs_beside_the_memory_is_among_what_differs(player):
    loop = {"policy": "static", "allocator": "contiguous"}
    play(player, "a", 1, 2.0, kind=("loop", loop))
    play(player, "b", 1, 1.0, kind=("loop", {"policy": "chunked", "allocator": "paged"}))
    run = close(player)
    assert compared(run).also_different == (
        "allocator (contiguous and paged)",
        "policy (static and chunked)",
    )


def test_nothing_is_told_where_nothing_else_differs(player):
    play(player, "a", 1, 2.0, kind=STATIC)
    play(player, "b", 1, 1.0, kind=CHUNKED)
    assert "also differ" not in " ".join(finding(close(player)))
