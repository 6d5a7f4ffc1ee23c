"""Whatever was not measured, whatever an engine says: no file of a run holds NaN or infinity."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from engines.api import RequestStats, StepEvents
from harness.records import read_cells
from harness.records.parquet import CELLS_KEY
from harness.results.file import close_run, open_run

NAN, INF = math.nan, math.inf
NONE = {"nan": NAN, "inf": INF, "nested": [{"minus": -INF}, NAN]}


def strict(text: str | bytes) -> Any:
    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is not JSON")

    return json.loads(text, parse_constant=refuse)


@pytest.fixture
def folder(player) -> Path:
    """Two engines with unmeasured and impossible numbers in every place that takes one."""
    settings = {"loads": [{"name": "load", "request_rate": INF}], "engine_order": ["a", "b"]}
    open_run(player.folder, settings | NONE, NONE)
    for engine, at_s in (("a", NAN), ("b", INF)):
        requests = [player.request("r0", out=1), player.request("r1", out=2)]
        times = RequestStats(queue_s=at_s, decode_s=at_s, first_time_prompt=at_s)
        events = [
            StepEvents(0.5, step=player.step(1, 0.0, 0.5, schedule_s=at_s)),
            StepEvents(0.6, step=player.step(2, 0.5, 0.6, update_s=at_s, tokens_held=at_s)),
            StepEvents(at_s, ("r0",), ((1,),)),
            StepEvents(1.0, ("r0",), ((1,),)),
            player.end(1.0, "r0", stats=replace(times, preempted_from_s=(at_s,))),
            player.end(2.0, "r1", "failed", "x"),
        ]
        info = player.info(settings=NONE)
        player.record(requests, events, engine=engine, info=info)
    close_run(player.folder)
    return player.folder


def test_every_file_of_a_run_is_strict_json(folder):  # F1
    read = {path.name for path in folder.rglob("*.json") if strict(path.read_text()) is not None}
    assert {"run.json", "settings.json"} <= read
    for path in folder.rglob("*.jsonl"):
        for line in path.read_bytes().splitlines():
            strict(line)
    strict((pq.read_schema(folder / "requests.parquet").metadata or {})[CELLS_KEY])


def test_infinity_is_a_word_and_what_is_no_number_is_null(folder):  # F1
    run = strict((folder / "run.json").read_text())
    assert run["settings"]["loads"][0]["request_rate"] == "inf"
    assert run["environment"] == {"nan": None, "inf": "inf", "nested": [{"minus": "-inf"}, None]}
    assert run["results"][0]["tpot_s"]["p95"] is None


def test_an_engines_numbers_that_are_none_are_left_out_and_told(folder):  # F1
    for result in strict((folder / "run.json").read_text())["results"]:
        assert (result["counts"]["ok"], result["steps"], result["queue_s"]) == (1, 1, None)
        (whole, _), (cut, _) = (cell.requests for cell in read_cells(folder))
        assert whole.stats.preempted_from_s == cut.stats.preempted_from_s == ()
        assert "4 with a number that is none" in " ".join(result["verdict"]["reasons"])


def test_tables_hold_null_for_what_is_no_number(folder):  # F1
    table = pq.read_table(folder / "requests.parquet", partitioning=None)
    for name in table.column_names:
        values = [v for v in table[name].to_pylist() if isinstance(v, float)]
        assert all(map(math.isfinite, values)), name


def test_the_report_shows_no_nan(folder):  # F1
    words = (folder / "report.md").read_text().lower().replace("`", " ").split()
    assert "nan" not in [word.strip("(),|") for word in words if "=" not in word]
