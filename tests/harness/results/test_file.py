"""A run's folder: closed, interrupted, read back, refused."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from engines.api import CbbenchError, RequestStats, StepEvents
from harness.records import CellTrailer
from harness.results.digest import digest_of
from harness.results.file import close_run, open_run, read_run, render_report

REQUEST_COLUMNS = [
    "engine",
    "load",
    "round",
    "request_id",
    "class",
    "status",
    "reason",
    "prompt_tokens",
    "output_tokens",
    "scheduled_s",
    "sent_s",
    "first_token_s",
    "end_s",
    "ttft_from_send_s",
    "queue_s",
    "prefill_s",
    "decode_s",
    "preempted_s",
    "num_preemptions",
    "num_steps",
    "max_stall_s",
    "max_stall_cause",
    "token_times_s",
    "token_counts",
]
STEP_COLUMNS = [
    "engine",
    "load",
    "round",
    "step",
    "start_s",
    "compute_s",
    "schedule_s",
    "pack_s",
    "num_running",
    "num_waiting",
    "prefill_tokens",
    "decode_tokens",
    "prompt",
    "output",
    "recomputed",
    "padding",
    "rejected_draft",
    "past_stop",
    "blocks_used",
    "blocks_cached",
    "blocks_free",
    "preemptions",
]
RESULT_NAMES = [
    "engine",
    "spec",
    "load",
    "round",
    "verdict",
    "counts",
    "makespan_s",
    "request_throughput_req_s",
    "output_throughput_tok_s",
    "total_throughput_tok_s",
    "goodput_req_s",
    "attainment",
    "ttft_s",
    "tpot_s",
    "itl_s",
    "e2e_s",
    "queue_s",
    "max_stall_s",
    "lag_s",
    "preemptions",
    "ledger",
    "slot_utilisation",
    "kv_utilisation",
    "steps",
    "classes",
]
SETTINGS = {
    "workload": {"name": "chat", "seed": 1, "hash": "abc", "settings": {}, "clipped": {}},
    "loads": [{"name": "load", "request_rate": math.inf, "max_concurrency": None}],
    "engine_order": ["slow", "fast"],
    "goodput": "ttft:500",
}


def strict(path: Path):
    def refuse(name: str):
        raise AssertionError(f"{name} is not JSON")

    return json.loads(path.read_text(), parse_constant=refuse)


def two_engines(player, rounds: int = 1) -> None:
    open_run(player.folder, SETTINGS, {"cpu": "fake"})
    for number in range(1, rounds + 1):
        for engine, pace_s in (("slow", 2.0), ("fast", 1.0)):
            requests = [player.request("a", out=2), player.request("b", prompt=9, out=2)]
            row = player.step(1, 0.0, pace_s, prompt=11)
            events = [
                StepEvents(pace_s, step=row),
                *player.answer("a", [pace_s, 2 * pace_s], RequestStats(first_time_prompt=2)),
                *player.answer("b", [pace_s, 3 * pace_s], RequestStats(first_time_prompt=9)),
            ]
            player.record(requests, events, engine=engine, number=number)


def test_run_json_has_the_names_of_the_definitions_and_is_strict(player, tmp_path):  # F1
    two_engines(player)
    close_run(tmp_path)
    run = strict(tmp_path / "run.json")
    for name in ("schema_version", "workload_hash", "environment", "settings", "comparisons"):
        assert name in run
    result = run["results"][0]
    assert set(RESULT_NAMES) <= result.keys()
    assert {"n", "mean", "std", "p50", "p95", "p99", "max"} <= result["ttft_s"].keys()
    assert result["lag_s"] is None
    assert run["settings"]["loads"][0]["request_rate"] == "inf"
    assert run["workload_hash"] == "abc"


def test_tables_have_the_columns_of_the_definitions(player, tmp_path):
    two_engines(player)
    close_run(tmp_path)
    requests = pq.read_table(tmp_path / "requests.parquet", partitioning=None)
    assert requests.column_names[: len(REQUEST_COLUMNS)] == REQUEST_COLUMNS
    assert requests["class"].to_pylist() == ["short", "long"] * 2
    assert requests["sent_s"].to_pylist() == [0.0] * 4
    steps = pq.read_table(tmp_path / "steps.parquet", partitioning=None)
    assert steps.column_names[: len(STEP_COLUMNS)] == STEP_COLUMNS
    assert steps.num_rows == 2


def test_a_run_read_back_is_the_one_that_was_written(player, tmp_path):
    two_engines(player, rounds=5)
    written = close_run(tmp_path)
    assert read_run(tmp_path) == written
    ratio = next(c for c in written.comparisons if c.metric == "output_throughput_tok_s")
    assert (ratio.baseline, ratio.engine, ratio.answer) == ("slow", "fast", "better")
    assert ratio.ratio == pytest.approx(2.0)


def test_an_interrupted_run_is_read_closed_and_reported(player, tmp_path):
    two_engines(player)
    path = tmp_path / "raw" / "fast.load.1.jsonl"
    path.write_bytes(path.read_bytes()[:-120])  # killed in the middle of a line
    before = read_run(tmp_path)
    assert not (tmp_path / "run.json").exists()
    assert "cut short" in render_report(tmp_path)
    assert close_run(tmp_path) == before
    assert read_run(tmp_path) == before


def test_closing_twice_changes_nothing(player, tmp_path):
    two_engines(player)
    first = close_run(tmp_path)
    assert close_run(tmp_path) == first
    (tmp_path / "raw").rename(tmp_path / "moved")
    assert close_run(tmp_path) == first


def test_nothing_ok_still_gives_a_valid_file_and_report(player, tmp_path):  # E2
    requests = [player.request(name) for name in "abcde"]
    events = [player.end(0.1, name, "failed", "connection refused") for name in "abcde"]
    player.record(requests, events)
    close_run(tmp_path, {}, {})
    strict(tmp_path / "run.json")
    report = (tmp_path / "report.md").read_text()
    assert "0 of 5 requests succeeded" in report
    assert "connection refused" in report
    assert "nan" not in report.lower()


def test_a_run_without_any_cell_is_closed_and_says_why(tmp_path):
    open_run(tmp_path, {"engine_errors": {"big": "does not fit"}}, {})
    (tmp_path / "raw").mkdir()
    run = close_run(tmp_path)
    assert run.results == ()
    assert "does not fit" in render_report(tmp_path)


@pytest.mark.parametrize("version", [0, 2, "1", None])
def test_another_schema_version_is_refused(player, tmp_path, version):
    two_engines(player)
    close_run(tmp_path)
    path = tmp_path / "run.json"
    path.write_text(json.dumps(strict(path) | {"schema_version": version}))
    with pytest.raises(CbbenchError, match="this cbbench reads 1"):
        read_run(tmp_path)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"schema_version": 1}'])
def test_what_is_no_run_json_is_refused_in_a_sentence(tmp_path, text):
    (tmp_path / "run.json").write_text(text)
    with pytest.raises(CbbenchError, match=r"expected a run\.json"):
        read_run(tmp_path)


def test_keys_of_a_newer_writer_are_passed_over(player, tmp_path):
    two_engines(player)
    written = close_run(tmp_path)
    path = tmp_path / "run.json"
    run = strict(path)
    run["new"] = run["results"][0]["new"] = run["results"][0]["ttft_s"]["new"] = 1
    path.write_text(json.dumps(run | {"digest": digest_of(run)}))
    assert read_run(tmp_path) == written


def test_verdict_sums_measured_time_over_rounds(player, tmp_path):
    open_run(tmp_path, {}, {})
    for number in (1, 2):
        player.record(
            [player.request("a", out=1)],
            player.answer("a", [3.0]),
            number=number,
            trailer=CellTrailer(3.0, warmup_requests=1),
        )
    run = close_run(tmp_path)
    assert [r.verdict.status for r in run.results if r.verdict] == ["VALID", "VALID"]


def test_the_first_round_of_each_engine_and_load_is_set_against_its_later_ones(player, tmp_path):
    open_run(tmp_path, {}, {})
    for engine, load, slow in (("a", "x", 1), ("a", "y", 0), ("b", "x", 2)):
        for number in range(1, 7):
            end_s = 2.0 if number == slow else 1.0
            player.record(
                [player.request("r", out=1)],
                player.answer("r", [end_s]),
                engine=engine,
                load=load,
                number=number,
            )
    run = close_run(tmp_path)
    cold = [
        (r.engine, r.load, r.round)
        for r in run.results
        if any("cold one" in reason for reason in r.verdict.reasons)
    ]
    assert cold == [("a", "x", 1)]
