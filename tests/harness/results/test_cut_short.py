"""A folder that `kill -9` left, at any byte; a record that somebody changed."""

from __future__ import annotations

import json

import pyarrow.parquet as pq
import pytest

from engines.api import CbbenchError
from harness.results.file import close_run, read_run, render_report


@pytest.fixture
def recorded(player) -> bytes:
    """Two rounds of one engine; the bytes of the second round's raw file."""
    for number in (1, 2):
        requests = [player.request(name, out=2) for name in "ab"]
        events = [e for name in "ab" for e in player.answer(name, [1.0, 2.0 + number])]
        player.record(requests, events, number=number)
    return second_round(player).read_bytes()


def second_round(player):
    return player.folder / "raw" / "fake.load.2.jsonl"


def test_a_file_cut_at_any_byte_is_read_and_its_cell_marked(player, recorded):
    whole_tokens = 4
    for size in range(0, len(recorded), 7):
        second_round(player).write_bytes(recorded[:size])
        run = read_run(player.folder)
        first, *others = run.results
        assert first.finished
        assert first.counts.ok == 2
        for cut in others:
            assert not cut.finished
            assert cut.verdict.status == "SUSPECT"
            assert "cut short" in " ".join(cut.verdict.reasons)
            assert cut.output_tokens.n * 2 <= whole_tokens
    assert "cut short" in render_report(player.folder)


def test_killed_between_the_tables_and_run_json_the_rows_are_taken(player, recorded):
    closed = close_run(player.folder, {}, {})
    (player.folder / "run.json").unlink()
    assert read_run(player.folder) == closed
    (player.folder / "steps.parquet").write_bytes(b"half a table")
    assert read_run(player.folder) == closed


@pytest.mark.parametrize(
    "change",
    [
        lambda header: header.pop("key"),
        lambda header: header.update(key="fake"),
        lambda header: header["requests"].pop("session"),
        lambda header: header["requests"]["scheduled_s"].clear(),
    ],
    ids=["no key", "key", "no column", "short column"],
)
def test_a_changed_record_is_refused_in_a_sentence(player, recorded, change):
    first, *rest = recorded.splitlines(keepends=True)
    header = json.loads(first)
    change(header)
    second_round(player).write_bytes(json.dumps(header).encode() + b"\n" + b"".join(rest))
    with pytest.raises(CbbenchError, match="a line that cbbench never writes"):
        read_run(player.folder)


def without_cells(path):
    pq.write_table(pq.read_table(path, partitioning=None).replace_schema_metadata({}), path)


def without_a_column(path):
    table = pq.read_table(path, partitioning=None)
    pq.write_table(table.drop_columns(["status"]), path)


@pytest.mark.parametrize("change", [without_cells, without_a_column])
def test_a_table_that_another_program_wrote_again_is_refused_in_a_sentence(
    player, recorded, change
):
    closed = close_run(player.folder, {}, {})
    (player.folder / "raw").rename(player.folder / "moved")
    assert close_run(player.folder) == closed
    change(player.folder / "requests.parquet")
    with pytest.raises(CbbenchError, match="is not as cbbench wrote it"):
        close_run(player.folder)


@pytest.mark.parametrize("text", ["", "[]", "null", '{"settings": 3}', "{half"])
def test_broken_settings_are_passed_over(player, recorded, text):
    (player.folder / "settings.json").write_text(text)
    assert len(read_run(player.folder).results) == 2
