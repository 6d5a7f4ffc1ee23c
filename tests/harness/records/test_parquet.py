"""The closed form of a run gives back what no row of it says."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

from engines.api import RequestStats, StepRow
from engines.clock import VirtualClock
from harness.records import CellKey, CellRecorder, CellTrailer, read_cells
from harness.records.line_file import FLUSH_INTERVAL_S
from harness.results.file import close_run


def test_a_closed_loop_is_one_in_either_form(player, tmp_path):
    recorder = CellRecorder(
        tmp_path,
        CellKey("e", "l", 1),
        [player.request("a"), player.request("b")],
        spec="e",
        info=player.info(),
        clock=VirtualClock(),
    )
    for event in player.answer("a", [1.0, 2.0]):
        recorder.emit(event)
    recorder.rescheduled([player.request("b", at=2.0)])
    for event in player.answer("b", [3.0, 4.0]):
        recorder.emit(event)
    recorder.close(CellTrailer(4.0))
    (raw,) = read_cells(tmp_path)
    close_run(tmp_path, {}, {})
    (tmp_path / "raw").rename(tmp_path / "gone")
    (closed,) = read_cells(tmp_path)
    assert closed == raw
    assert closed.closed_loop
    assert [request.scheduled_s for request in closed.requests] == [0.0, 2.0]


def distinct(kind: type) -> dict[str, Any]:
    """A value of its own for each field, of the field's type."""
    values: dict[str, Any] = {}
    for number, field in enumerate(fields(kind), start=2):
        kinds = str(field.type)
        if "Cause" in kinds:
            values[field.name] = "prefill"
        elif "CountedBy" in kinds:
            values[field.name] = "usage"
        elif "Sequence" in kinds:
            values[field.name] = (number + 0.25, number + 0.5)
        else:
            values[field.name] = number + 0.5 if "float" in kinds else number
    return values


def test_nothing_that_engines_say_is_lost_when_a_run_is_closed(player, tmp_path):
    stats = RequestStats(**distinct(RequestStats))
    step = StepRow(**distinct(StepRow))
    events = player.answer("a", [1.0, 2.0], stats)
    player.record([player.request("a")], [*events[:-1], replace(events[-1], step=step)])
    (raw,) = read_cells(tmp_path)
    assert (raw.requests[0].stats, raw.steps) == (stats, (step,))
    close_run(tmp_path, {}, {})
    (tmp_path / "raw").rename(tmp_path / "gone")
    (closed,) = read_cells(tmp_path)
    assert closed == raw


def test_less_than_a_second_is_ever_unwritten():
    """Two intervals may pass between a line and its place on the disk."""
    assert 2 * FLUSH_INTERVAL_S < 1.0
