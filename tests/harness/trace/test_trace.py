"""trace.json keeps the rules of the Chrome trace event format, and says what the records say."""

from __future__ import annotations

import json
from collections import defaultdict
from itertools import pairwise

import pytest

from engines.api import CbbenchError, Request
from harness.records import read_cells
from harness.results.file import close_run
from harness.trace import TRACE_FILE, write_trace

SMALL = "num_blocks=12,block_size=4,max_num_seqs=5"
METADATA = {"process_name", "thread_name", "process_sort_index", "thread_sort_index"}


def some_requests() -> list[Request]:
    made = [
        Request(f"r{i}", tuple(range(1 + 7 * i % 19)), 2 + 5 * i % 11, scheduled_s=0.03 * i)
        for i in range(12)
    ]
    return [*made, Request("too big", tuple(range(70)), 9, scheduled_s=0.1)]


@pytest.fixture
def cells(simulate):
    return [
        simulate(f"a=loop[policy=static,{SMALL}]", some_requests()),
        simulate(f"b=continuous[max_num_batched_tokens=16,{SMALL}]", some_requests()),
    ]


@pytest.fixture
def events(cells, tmp_path):
    path = tmp_path / TRACE_FILE
    number = write_trace(path, cells)
    loaded = json.loads(path.read_text("ascii"), parse_constant=refuse)
    assert loaded["displayTimeUnit"] in ("ms", "ns")
    assert len(loaded["traceEvents"]) == number
    return loaded["traceEvents"]


def refuse(name: str) -> None:
    raise AssertionError(f"{name} is not JSON")


def of_kind(events, ph):
    return [event for event in events if event["ph"] == ph]


def test_every_event_keeps_the_rules_of_the_format(events):
    for event in events:
        assert event["ph"] in {"X", "i", "C", "M"}
        assert isinstance(event["name"], str)
        assert type(event["pid"]) is int
        assert type(event["tid"]) is int
        if event["ph"] == "M":
            assert event["name"] in METADATA
            (value,) = event["args"].values()
            assert event["args"].keys() <= {"name", "sort_index"}
            assert isinstance(value, str) == event["name"].endswith("_name")
        else:
            assert type(event["ts"]) is int, "microseconds"
            assert event["ts"] >= 0
        if event["ph"] == "X":
            assert type(event["dur"]) is int
            assert event["dur"] >= 0
        if event["ph"] == "i":
            assert event["s"] in {"g", "p", "t"}
        if event["ph"] == "C":
            assert event["args"]
            assert all(type(value) is int for value in event["args"].values())


def test_every_track_has_a_name_and_no_two_slices_of_it_overlap(events):
    named = {(e["pid"], e["tid"]) for e in events if e["name"] == "thread_name"}
    tracks = defaultdict(list)
    for event in of_kind(events, "X"):
        tracks[event["pid"], event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
    assert tracks.keys() <= named
    assert len(tracks) > 20
    for slices in tracks.values():
        slices.sort()
        assert all(end <= start for (_, end), (start, _) in pairwise(slices))


def test_a_cell_is_a_process_a_request_a_track_and_all_steps_are_one(events, cells):
    processes = [e["args"]["name"] for e in events if e["name"] == "process_name"]
    assert processes == ["a, load, round 1", "b, load, round 1"]
    for pid, cell in enumerate(cells, 1):
        names = [
            e["args"]["name"] for e in events if e["name"] == "thread_name" and e["pid"] == pid
        ]
        assert names[0] == "steps"
        assert [name.split(" (")[0] for name in names[1:]] == [r.request_id for r in cell.requests]
        steps = [e for e in of_kind(events, "X") if e["pid"] == pid and e["cat"] == "step"]
        assert len({e["tid"] for e in steps}) == 1
        assert [e["args"]["step"] for e in steps] == [row.step for row in cell.steps]
        assert [e["ts"] for e in steps] == [round(row.start_s * 1e6) for row in cell.steps]
        assert {e["name"] for e in steps} <= {"prefill", "decode", "prefill and decode"}


def test_phases_on_the_tracks_last_as_long_as_the_records_say(events, cells):
    found: dict[tuple[int, str, str], int] = defaultdict(int)
    for event in of_kind(events, "X"):
        if event["cat"] == "request":
            found[event["pid"], event["args"]["request"], event["name"]] += event["dur"]
    assert any(kind == "preempted" for _, _, kind in found)
    for pid, cell in enumerate(cells, 1):
        for request in cell.requests:
            for kind in ("queue", "prefill", "decode", "preempted"):
                seconds = getattr(request.stats, f"{kind}_s") or 0.0
                microseconds = found[pid, request.request_id, kind]
                assert microseconds == pytest.approx(seconds * 1e6, abs=6)


def test_first_tokens_longest_stalls_and_bad_ends_are_marked(events, cells):
    marks = of_kind(events, "i")
    first = [e["ts"] for e in marks if e["name"] == "first token" and e["pid"] == 2]
    assert first == [round(r.first_token_s * 1e6) for r in cells[1].requests if r.token_times_s]
    stalls = [e["args"] for e in marks if e["name"] == "longest stall begins" and e["pid"] == 2]
    assert "preemption" in {stall["cause"] for stall in stalls}
    rejected = [e for e in marks if e["name"] == "rejected"]
    assert len(rejected) == 2
    assert "need" in rejected[0]["args"]["reason"]


def test_counters_follow_the_steps(events, cells):
    counters = [e for e in of_kind(events, "C") if e["pid"] == 2]
    by_name = defaultdict(list)
    for event in counters:
        by_name[event["name"]].append(event["args"])
    rows = cells[1].steps
    assert by_name["requests"] == [
        {"running": row.num_running, "waiting": row.num_waiting} for row in rows
    ]
    assert [args["used"] for args in by_name["KV blocks"]] == [row.blocks_used for row in rows]
    assert [args["held"] for args in by_name["KV tokens"]] == [row.tokens_held for row in rows]


def test_what_an_engine_does_not_tell_has_no_track(player, tmp_path):
    player.record([player.request("a")], player.answer("a", [1.0, 2.0]))
    write_trace(tmp_path / TRACE_FILE, read_cells(tmp_path))
    events = json.loads((tmp_path / TRACE_FILE).read_text())["traceEvents"]
    assert of_kind(events, "C") == []
    assert [e["name"] for e in of_kind(events, "X")] == ["until first token", "decode"]


def test_a_closed_folder_and_its_raw_files_give_the_same_trace(cells, tmp_path):
    write_trace(tmp_path / "raw.json", read_cells(tmp_path))
    close_run(tmp_path, {}, {})
    (tmp_path / "raw").rename(tmp_path / "gone")
    write_trace(tmp_path / "closed.json", read_cells(tmp_path))
    assert (tmp_path / "raw.json").read_text() == (tmp_path / "closed.json").read_text()


def test_names_from_outside_stay_text(player, tmp_path):
    name = '"</script>\n\ud800'
    player.record([player.request(name)], player.answer(name, [1.0]), engine="e\n")
    write_trace(tmp_path / TRACE_FILE, read_cells(tmp_path))
    events = json.loads((tmp_path / TRACE_FILE).read_text("ascii"))["traceEvents"]
    assert events[0]["args"]["name"] == "e\n, load, round 1"
    assert any(e["args"].get("request") == name for e in events)


def test_nothing_is_left_of_a_trace_that_cannot_be_written(cells, tmp_path):
    with pytest.raises(CbbenchError, match="cannot write"):
        write_trace(tmp_path / "no" / "such" / TRACE_FILE, cells)


def test_events_are_written_as_they_come(cells, tmp_path):
    """A cell's events are not gathered before the file has the first of them."""
    seen = []

    def one_by_one():
        for cell in cells:
            unfinished = tmp_path / (TRACE_FILE + ".tmp")
            seen.append(unfinished.stat().st_size)
            yield cell

    write_trace(tmp_path / TRACE_FILE, one_by_one())
    assert seen[1] > 10_000
