"""What only engines over HTTP say: counts that come with the end, limits, what a client saw."""

from __future__ import annotations

from dataclasses import replace

import pytest

from engines.api import PromptLimits
from harness.records import CellTrailer, read_cells
from harness.results.file import close_run


def corrected(player, counts):
    events = player.answer("a", [1.0, 2.0, 3.0])
    finish = replace(events[-1].finished[0], token_counts=counts)
    last = replace(events[-1], finished=[finish])
    return player.cell([player.request("a")], [*events[:-1], last]).requests[0]


def test_counts_that_come_with_the_end_replace_those_before(player):
    request = corrected(player, [3, 4, 2])
    assert request.token_counts == (3, 4, 2)
    assert request.token_times_s == (1.0, 2.0, 3.0)
    assert request.output_tokens == 9


def test_an_event_without_a_token_after_all_is_none(player):
    request = corrected(player, [1, 0, 1])
    assert (request.token_times_s, request.token_counts) == ((1.0, 3.0), (1, 1))


@pytest.mark.parametrize("counts", [None, [9], [1, 1, 1, 1]])
def test_counts_that_do_not_fit_the_events_are_not_believed(player, counts):
    assert corrected(player, counts).token_counts == (1, 1, 1)


def test_limits_and_observations_come_back_in_either_form(player, tmp_path):
    info = replace(player.info(), slots=None, prompts=PromptLimits(100, (0, 1)))
    trailer = CellTrailer(4.0, remote={"client": {"connection_retries": 2}})
    player.record([player.request("a")], player.answer("a", [1.0]), info=info, trailer=trailer)
    (raw,) = read_cells(tmp_path)
    close_run(tmp_path, {}, {})
    (tmp_path / "raw").rename(tmp_path / "gone")
    (closed,) = read_cells(tmp_path)
    for cell in (raw, closed):
        assert (cell.info.slots, cell.info.prompts) == (None, PromptLimits(100, (0, 1)))
        assert cell.trailer.remote == {"client": {"connection_retries": 2}}
