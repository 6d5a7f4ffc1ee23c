"""The raw file of a worker that was killed: what was written whole stays, and its end is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.records import CellKey, CellTrailer, read_cells
from harness.records.repair import record_death

KEY = CellKey("fake", "load", 1)


def raw_file(player, trailer=None) -> Path:
    events = player.answer("a", [1.0, 2.0, 3.0])
    player.record([player.request("a")], events, trailer=trailer)
    return player.folder / "raw" / KEY.file_name


def test_a_torn_last_line_is_cut_and_the_end_is_told(player):
    path = raw_file(player)
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"t":4.0,"r":[')
    record_death(player.folder, KEY, "it was killed")
    assert path.read_bytes().startswith(whole + b'{"end":')
    (cell,) = read_cells(player.folder)
    assert cell.trailer is not None
    assert (cell.trailer.error, cell.trailer.end_s) == ("it was killed", 3.0)


@pytest.mark.parametrize("lines", [1, 3, 4])
def test_a_whole_last_line_without_its_newline_is_kept(player, lines):
    path = raw_file(player)
    kept = b"".join(path.read_bytes().splitlines(keepends=True)[:lines])
    path.write_bytes(kept.removesuffix(b"\n"))
    record_death(player.folder, KEY, "it was killed")
    assert path.read_bytes().startswith(kept + b'{"end":')
    (cell,) = read_cells(player.folder)
    assert cell.requests[0].output_tokens == lines - 1
    assert cell.trailer is not None


def test_a_cell_that_has_its_trailer_is_left_as_it_is(player):
    path = raw_file(player, CellTrailer(end_s=3.0))
    before = path.read_bytes()
    record_death(player.folder, KEY, "it was killed")
    assert path.read_bytes() == before


def test_a_cell_without_a_file_gets_none(player):
    record_death(player.folder, KEY, "it was killed")
    assert not (player.folder / "raw").exists()
