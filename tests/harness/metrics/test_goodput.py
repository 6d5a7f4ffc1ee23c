"""Which requests meet their bounds, and how bounds are written."""

from __future__ import annotations

from contextlib import contextmanager

import pytest

from engines.api import CbbenchError
from engines.clock import VirtualClock
from harness.metrics import parse_goodput, summarise_cell
from harness.records import CellKey, CellRecorder, CellTrailer, RecordedSource, read_cells
from harness.results.file import close_run
from workloads.sources import ClosedLoopSource


def attained(player, requests, events, text, trailer=None):
    cell = player.cell(requests, events, trailer=trailer or CellTrailer(0.0))
    return summarise_cell(cell, parse_goodput(text))


def test_goodput_is_over_time_and_attainment_over_what_was_offered(player):  # X1
    requests = [player.request(name, out=2) for name in "ABCD"]
    events = [
        *player.answer("A", [0.400, 0.440]),
        *player.answer("B", [0.600, 0.640]),
        *player.answer("C", [0.400, 0.460]),
        player.tokens(2.0, {"D": 1}),
        player.end(2.0, "D", "failed", "broke"),
    ]
    result = attained(player, requests, events, "ttft:500,tpot:50")
    assert result.goodput_req_s == pytest.approx(0.5)
    assert result.attainment == pytest.approx(0.25)


@pytest.mark.parametrize(
    "text",
    [
        "ttfp:1",
        "ttft:-1",
        "ttft:abc",
        "ttft:0",
        "ttft:nan",
        "ttft:inf",
        "ttft",
        "",
        "ttft:1,ttft:2",
    ],
)
def test_bad_bounds_are_refused(text):
    with pytest.raises(CbbenchError, match="SLO"):
        parse_goodput(text)


def test_a_wrong_name_is_answered_with_the_nearest():
    with pytest.raises(CbbenchError, match="did you mean 'ttft'"):
        parse_goodput("ttfp:1")


def test_half_a_millisecond_is_taken_as_written_with_a_warning():
    goodput = parse_goodput("ttft:0.5")
    assert goodput.slos[0].bound_s == 0.0005
    assert "0.5 ms" in goodput.warnings[0]
    assert goodput.describe() == "ttft <= 0.5 ms"
    assert not parse_goodput("ttft:500").warnings


@pytest.mark.parametrize(
    ("slo", "good"),
    [
        ("itl:50", 0),
        ("itl:51", 1),
        ("stall:149", 0),
        ("stall:151", 1),
        ("e2el:299", 0),
        ("e2el:301", 1),
    ],
)
def test_itl_judges_tokens_stall_events_and_e2el_the_whole(player, slo, good):
    events = [
        player.tokens(0.1499, {"a": 1}),
        player.tokens(0.2999, {"a": 3}),  # a gap of 150 ms, 50 ms a token
        player.end(0.2999, "a"),
    ]
    bounds = {"itl:50": "itl:49.9", "itl:51": "itl:50.1"}.get(slo, slo)
    result = attained(player, [player.request("a", out=4)], events, bounds)
    assert result.attainment == good


def test_one_token_meets_any_tpot_and_one_event_is_judged_by_its_whole_time(player):
    requests = [player.request("one", out=1), player.request("burst", out=4)]
    events = [
        *player.answer("one", [9.0]),
        player.tokens(1.0, {"burst": 4}),
        player.end(1.0, "burst"),
    ]
    cell = player.cell(requests, events)
    assert summarise_cell(cell, parse_goodput("tpot:249")).attainment == 0.5
    assert summarise_cell(cell, parse_goodput("tpot:251")).attainment == 1.0


def test_what_the_runs_end_cut_off_is_left_out_unless_already_missed(player):
    requests = [
        player.request("good", out=1),
        player.request("late"),
        player.request("new", at=9.9),
    ]
    events = player.answer("good", [0.1])
    result = attained(player, requests, events, "ttft:500", CellTrailer(10.0, interrupted=True))
    assert result.attainment == pytest.approx(1 / 2)
    assert result.goodput_excluded == 1


@pytest.mark.parametrize(
    ("slo", "excluded"),
    [
        ("ttft:500", 1),
        ("tpot:4000", 0),
        ("tpot:5000", 1),
        ("stall:500", 0),
        ("itl:5000", 1),
        ("itl:50", 0),
    ],
)
def test_an_unfinished_answer_is_a_miss_only_when_nothing_could_save_it(player, slo, excluded):
    events = [player.tokens(0.1, {"a": 1}), player.tokens(0.2, {"a": 1})]
    trailer = CellTrailer(9.0, interrupted=True)
    result = attained(player, [player.request("a", out=3)], events, slo, trailer)
    assert result.goodput_excluded == excluded


def test_a_wait_without_a_first_token_has_missed_no_tpot(player):
    trailer = CellTrailer(9.0, interrupted=True)
    result = attained(player, [player.request("a")], [], "tpot:50", trailer)
    assert result.goodput_excluded == 1
    assert result.attainment is None


@contextmanager
def closed_loop(player, clients, asked, until_s):
    """A recorded closed loop of `asked` requests, cut short at `until_s`."""
    clock = VirtualClock()
    requests = [player.request(f"r{i}") for i in range(asked)]
    recorder = CellRecorder(
        player.folder,
        CellKey("e", "l", 1),
        requests,
        spec="e",
        info=player.info(),
        clock=clock,
        closed_loop=True,
    )
    inner = ClosedLoopSource(requests, clock, clients)
    source = RecordedSource(inner, recorder)
    yield source, inner, recorder
    recorder.close(CellTrailer(until_s, interrupted=True))


def test_in_a_closed_loop_cut_short_only_what_was_handed_out_can_have_missed(player):
    """Two wait since 0, the third since its slot was freed; the other seven never arrived."""
    with closed_loop(player, 3, 10, until_s=9.0) as (source, inner, recorder):
        assert len(source.take(0.0, 9)) == 3
        for event in player.answer("r0", [0.1, 0.2, 0.3]):
            inner.emit(event)
            recorder.emit(event)
        assert [r.request_id for r in source.take(0.3, 9)] == ["r3"]
    (cell,) = read_cells(player.folder)
    assert [r.arrived for r in cell.requests] == [True] * 4 + [False] * 6
    result = summarise_cell(cell, parse_goodput("ttft:500"))
    assert result.goodput_excluded == 6
    assert result.attainment == pytest.approx(1 / 4)


def test_a_closed_loop_cut_short_before_anything_ended_is_known_as_one(player):
    with closed_loop(player, 2, 5, until_s=9.0) as (source, _, _):
        source.take(0.0, 9)
    (cell,) = read_cells(player.folder)
    result = summarise_cell(cell, parse_goodput("ttft:500"))
    assert (result.goodput_excluded, result.attainment) == (3, 0.0)
    assert result.load_kind == "closed"


def test_a_closed_loop_of_which_nothing_was_handed_out_has_missed_nothing(player):
    with closed_loop(player, 2, 5, until_s=9.0):
        pass
    (cell,) = read_cells(player.folder)
    result = summarise_cell(cell, parse_goodput("ttft:500"))
    assert (result.goodput_excluded, result.attainment) == (5, None)


def test_what_a_closed_loop_never_handed_out_stays_so_in_the_closed_run(player):
    with closed_loop(player, 2, 5, until_s=9.0) as (source, _, _):
        source.take(0.0, 9)
    close_run(player.folder, {}, {})
    (player.folder / "raw").rename(player.folder / "gone")
    (cell,) = read_cells(player.folder)
    assert [r.arrived for r in cell.requests] == [True] * 2 + [False] * 3


def test_without_bounds_there_is_no_goodput(player):
    result = attained(player, [player.request("a")], player.answer("a", [1.0]), None)
    assert result.goodput_req_s is None
    assert result.attainment is None
