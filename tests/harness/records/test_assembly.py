"""A cell is put together from lines that need not make sense."""

from __future__ import annotations

import json
import math

import pytest

from engines.api import CbbenchError, StepEvents
from harness.records import CellTrailer, Defects, read_cells
from harness.records.encoding import strict_json


def test_time_that_goes_back_is_counted_and_gives_no_negative_gap(player, tmp_path):
    player.record([player.request("a")], player.answer("a", [0.1, 0.2, 0.3]))
    (path,) = (tmp_path / "raw").iterdir()
    header, first, second, *rest = path.read_text().splitlines(keepends=True)
    path.write_text("".join([header, second, first, *rest]))
    (cell,) = read_cells(tmp_path)
    assert cell.requests[0].token_times_s == (0.2, 0.2, 0.3)
    assert cell.defects.out_of_order == 1


def test_an_event_without_tokens_is_no_first_token(player):
    events = [StepEvents(0.1, ("a",), ((),)), *player.answer("a", [0.5, 0.6])]
    (request,) = player.cell([player.request("a")], events).requests
    assert (request.first_token_s, request.token_counts) == (0.5, (1, 1))


def test_the_first_end_of_a_request_counts(player):
    events = [*player.answer("a", [0.1]), player.end(0.2, "a", "failed", "too late")]
    cell = player.cell([player.request("a")], events)
    assert (cell.requests[0].status, cell.requests[0].reason) == ("ok", "")
    assert cell.defects.finished_twice == 1


def test_tokens_after_the_end_are_left_out(player):
    events = [*player.answer("a", [0.1]), player.tokens(0.9, {"a": 5})]
    cell = player.cell([player.request("a")], events)
    assert (cell.requests[0].output_tokens, cell.requests[0].end_s) == (1, 0.1)


@pytest.mark.parametrize(("trailer", "end_s"), [(None, 0.7), (CellTrailer(9.0), 9.0)])
def test_a_cell_ends_with_the_last_instant_seen(player, trailer, end_s):
    events = [player.tokens(0.1, {"a": 1}), player.tokens(0.7, {"a": 1})]
    assert player.cell([player.request("a")], events, trailer).end_s == end_s


def test_a_record_of_another_version_is_refused_by_its_number(player, tmp_path):
    player.record([player.request("a")], [])
    (path,) = (tmp_path / "raw").iterdir()
    header, *rest = path.read_text().splitlines(keepends=True)
    path.write_text("".join([json.dumps(json.loads(header) | {"v": 7}) + "\n", *rest]))
    with pytest.raises(CbbenchError, match="a record of version 7, expected 1"):
        read_cells(tmp_path)


def test_what_json_lacks_is_written_in_words_or_left_out():  # F1
    odd = {"rate": math.inf, "lowest": -math.inf, "mean": math.nan, "all": (math.nan, 1.5)}
    assert strict_json(odd) == {"rate": "inf", "lowest": "-inf", "mean": None, "all": [None, 1.5]}


def test_a_token_before_its_requests_arrival_is_counted_and_gives_no_negative_wait(player):
    events = player.answer("a", [0.4, 1.5])
    cell = player.cell([player.request("a", at=1.0, out=2)], events)
    assert cell.requests[0].token_times_s == (1.0, 1.5)
    assert cell.defects == Defects(before_arrival=1)
    assert cell.defects.total == 1
