"""Writing a cell while it runs and reading it back, whole, torn, or on a full disk."""

from __future__ import annotations

import errno
import json
import math
import pickle
import threading
from pathlib import Path

import pytest

from engines.api import (
    END,
    CbbenchError,
    EngineInfo,
    Finish,
    ModelInfo,
    RequestStats,
    StepEvents,
)
from engines.clock import VirtualClock
from harness.records import (
    CellKey,
    CellRecorder,
    CellTrailer,
    Defects,
    RecordedSource,
    read_cells,
)
from harness.records.line_file import LineFile
from harness.results.file import close_run


def strict(text: str):
    def refuse(name: str):
        raise AssertionError(f"{name} is not JSON")

    return json.loads(text, parse_constant=refuse)


def raw_file(folder: Path) -> Path:
    (path,) = (folder / "raw").iterdir()
    return path


def full_cell(player) -> None:
    """A cell with everything in it: steps, several tokens an event, every outcome."""
    requests = [player.request(name, at=i / 10, label=name) for i, name in enumerate("abcde")]
    stats = RequestStats(0.1, 0.2, 0.3, 0.0, 1, 4, "prefill", 2, 2, 0)
    model = ModelInfo("tiny", 4096, 4096, (2,), (0, 1, 2), 25_000_000, 8192, "float32", "cpu")
    info = EngineInfo("fake", {"policy": "chunked"}, 4096, 4, 1024, model, ("a note",))
    events = [
        StepEvents(
            0.5,
            ("a", "b"),
            ((7, 8), (9,)),
            (Finish("a", "ok", "stop", "", stats),),
            player.step(1, 0.1, 0.5, tokens_held=3, tokens_reserved=16, prompt=4),
        ),
        player.end(0.6, "c", "rejected", "too long: 9 > 8"),
        player.end(0.7, "d", "timeout", "no token for 0.5 s"),
        player.end(0.8, "b", "failed", "broke"),
    ]
    trailer = CellTrailer(1.0, False, 3, 0.02, 0.001, 2, 0.004)
    player.record(requests, events, info=info, trailer=trailer, save_outputs=True)


def test_parquet_gives_the_same_cells_as_raw(player, tmp_path):
    full_cell(player)
    from_raw = read_cells(tmp_path)
    close_run(tmp_path, {}, {})
    (tmp_path / "raw").rename(tmp_path / "gone")
    assert read_cells(tmp_path) == from_raw
    (cell,) = from_raw
    assert cell.requests[0].output_ids == (7, 8)
    assert cell.requests[0].token_counts == (2,)
    assert cell.info.model is not None
    assert [r.status for r in cell.requests] == ["ok", "failed", "rejected", "timeout", "cancelled"]


def test_every_line_is_strict_json(player, tmp_path):
    full_cell(player)
    lines = raw_file(tmp_path).read_text().splitlines()
    assert len(lines) == 6
    for line in lines:
        strict(line)


def test_a_line_torn_anywhere_loses_only_itself(player, tmp_path):
    player.record([player.request("a")], player.answer("a", [0.1, 0.2, 0.3]))
    path = raw_file(tmp_path)
    whole = path.read_bytes()
    lines = whole.splitlines(keepends=True)
    for cut in range(len(lines[0]) + len(lines[1]) + 1, len(whole) - len(lines[-1])):
        path.write_bytes(whole[:cut])
        (cell,) = read_cells(tmp_path)
        assert cell.interrupted
        assert cell.trailer is None
        seen = len(cell.requests[0].token_times_s)
        assert cell.requests[0].token_times_s == (0.1, 0.2, 0.3)[:seen]
        assert seen >= 1


def test_a_cell_without_a_trailer_is_interrupted_and_its_requests_cancelled(player):
    cell = player.cell([player.request("a")], [player.tokens(0.1, {"a": 1})], trailer=None)
    assert cell.interrupted
    assert cell.requests[0].status == "cancelled"
    assert "cut short" in cell.requests[0].reason


def test_a_request_left_by_a_broken_engine_failed(player):
    trailer = CellTrailer(1.0, error="out of memory")
    cell = player.cell([player.request("a")], [], trailer=trailer)
    assert (cell.requests[0].status, cell.requests[0].reason) == ("failed", "out of memory")


def test_a_file_cut_in_its_first_line_is_passed_over(player, tmp_path):
    full_cell(player)
    (tmp_path / "raw" / "other.jsonl").write_bytes(b'{"v":1,"key":["a"')
    assert len(read_cells(tmp_path)) == 1


def test_a_folder_without_a_run_is_refused(tmp_path):
    with pytest.raises(CbbenchError, match="found no run"):
        read_cells(tmp_path)


def test_events_that_cannot_be_are_counted_not_fatal(player):
    events = [
        *player.answer("a", [0.1, 0.2]),
        player.tokens(0.3, {"a": 1}),
        player.end(0.4, "a"),
        player.tokens(0.5, {"nobody": 1}),
        player.end(0.6, "nobody"),
    ]
    cell = player.cell([player.request("a")], events)
    assert cell.defects == Defects(unknown_request=2, after_finish=1, finished_twice=1)
    assert cell.requests[0].output_tokens == 2


def test_a_number_that_is_none_is_written_as_null_and_counted(player, tmp_path):
    row = player.step(1, 0.0, math.nan)
    cell = player.cell([player.request("a")], [StepEvents(0.1, step=row)])
    assert cell.defects.not_a_number == 1
    strict(raw_file(tmp_path).read_text().splitlines()[1])


def test_an_empty_answer_is_a_failure(player):
    cell = player.cell([player.request("a")], [player.end(0.1, "a")])
    assert cell.requests[0].status == "failed"
    assert "empty" in cell.requests[0].reason


class FullDisk:
    """Takes `room` bytes, then fails, until `room` grows."""

    def __init__(self, path: Path, room: int) -> None:
        self.file = path.open("wb", buffering=0)
        self.room = room

    def write(self, data: bytes) -> int:
        part = data[: self.room]
        if not part:
            raise OSError(errno.ENOSPC, "No space left on device")
        self.room -= len(part)
        return self.file.write(part)

    def close(self) -> None:
        self.file.close()


def recorder_on(disk: FullDisk, folder: Path, requests) -> CellRecorder:
    return CellRecorder(
        folder,
        CellKey("e", "l", 1),
        requests,
        spec="e",
        info=EngineInfo("e", {}, 64, 1),
        clock=VirtualClock(),
        open_stream=lambda path: disk,
    )


def test_a_full_disk_is_told_at_close_and_keeps_what_was_written(player, tmp_path):
    path = tmp_path / "raw" / "e.l.1.jsonl"
    path.parent.mkdir()
    disk = FullDisk(path, room=700)
    recorder = recorder_on(disk, tmp_path, [player.request("a", out=500)])
    for i in range(500):
        recorder.emit(player.tokens(i / 10, {"a": 1}))
    with pytest.raises(CbbenchError, match=r"e\.l\.1\.jsonl: No space left.*free some space"):
        recorder.close(CellTrailer(50.0))
    (cell,) = read_cells(tmp_path)
    assert cell.requests[0].output_tokens > 3
    assert cell.interrupted


def test_a_full_disk_met_by_the_flusher_is_told_at_the_next_emit(player, tmp_path):
    path = tmp_path / "raw" / "e.l.1.jsonl"
    path.parent.mkdir()
    disk = FullDisk(path, room=0)
    recorder = recorder_on(disk, tmp_path, [player.request("a")])
    recorder._file._flush()  # what the daemon thread does each 0.4 s
    with pytest.raises(CbbenchError, match="No space left"):
        recorder.emit(player.tokens(0.1, {"a": 1}))
    disk.room = 10**6  # somebody made room: nothing is lost
    recorder.close(CellTrailer(1.0))
    (cell,) = read_cells(tmp_path)
    assert not cell.interrupted


class Watched:
    """Tells when something was written."""

    def __init__(self) -> None:
        self.written = threading.Event()

    def write(self, data: bytes) -> int:
        self.written.set()
        return len(data)

    def close(self) -> None:
        pass


def test_lines_reach_the_file_without_anyone_closing_it(tmp_path):
    stream = Watched()
    lines = LineFile(tmp_path / "x.jsonl", lambda path: stream)
    lines.append("{}")
    assert stream.written.wait(timeout=30)
    lines.close()


def test_a_recording_is_never_overwritten(player):
    player.record([player.request("a")], [])
    with pytest.raises(CbbenchError, match="is there already"):
        player.record([player.request("a")], [])


def test_labels_that_differ_never_share_a_file():
    labels = ["a/b", "a_b", "a.b", "../a", "[/cb]", "A" * 300, "A" * 299 + "B", ""]
    names = {CellKey(label, "l", 1).file_name for label in labels}
    assert len(names) == len(labels)
    assert all("/" not in name and len(name) < 200 for name in names)


class TwoRequests:
    """A closed loop in small: the second arrival is set when it is taken."""

    def __init__(self, requests) -> None:
        self.requests = list(requests)

    def take(self, now_s: float, limit: int):
        return [self.requests.pop(0)] if self.requests else []

    def next_due(self):
        return END

    def cancelled(self):
        return ()

    def wait(self, until_s: float) -> None:
        raise AssertionError


def test_an_arrival_set_late_replaces_the_schedule(player, tmp_path):
    recorder = CellRecorder(
        tmp_path,
        CellKey("e", "l", 1),
        [player.request("a"), player.request("b")],
        spec="e",
        info=EngineInfo("e", {}, 64, 1),
        clock=VirtualClock(),
    )
    source = RecordedSource(
        TwoRequests([player.request("a"), player.request("b", at=2.5)]), recorder
    )
    source.take(0.0, 1)
    source.take(2.5, 1)
    recorder.close(CellTrailer(3.0))
    (cell,) = read_cells(tmp_path)
    assert [r.scheduled_s for r in cell.requests] == [0.0, 2.5]
    assert cell.closed_loop


def test_snapshot_counts_what_went_by_and_can_be_pickled(player, tmp_path):
    clock = VirtualClock()
    recorder = CellRecorder(
        tmp_path,
        CellKey("e", "l", 1),
        [player.request("a"), player.request("b", at=0.5), player.request("c", at=9)],
        spec="e",
        info=EngineInfo("e", {}, 64, 4, kv_tokens=64),
        clock=clock,
    )
    row = player.step(1, 0.0, 1.0, num_running=2, num_waiting=1, tokens_reserved=32, preemptions=1)
    recorder.emit(StepEvents(1.0, ("a", "b"), ((1,), (2, 3)), (), row))
    recorder.emit(player.end(1.0, "a"))
    clock.advance(2.0)
    snapshot = pickle.loads(pickle.dumps(recorder.snapshot()))
    recorder.close()
    assert (snapshot.done, snapshot.total, snapshot.counts["ok"]) == (1, 3, 1)
    assert (snapshot.running, snapshot.waiting, snapshot.preemptions) == (2, 1, 1)
    assert snapshot.output_tok_s == pytest.approx(1.5)
    assert snapshot.ttft_p95_s == pytest.approx(0.975)
    assert snapshot.kv_used == 0.5
