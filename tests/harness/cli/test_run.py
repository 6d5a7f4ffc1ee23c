"""Whole runs of fake engines, each in worker processes, through the command line."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Call = Callable[..., "subprocess.CompletedProcess[str]"]


def strict_json(text: str) -> Any:
    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    return json.loads(text, parse_constant=refuse)


def run_file(folder: Path) -> Any:
    return strict_json((folder / "run.json").read_text())


def test_run_compares_and_writes_everything(call: Call, tmp_path: Path, small: list[str]) -> None:
    done = call("run", "--engines", "fake,b=fake[slots=2]", *small, "--out", "o")
    assert done.returncode == 0, done.stderr
    assert {"run.json", "report.md", "requests.parquet", "steps.parquet"} <= {
        path.name for path in (tmp_path / "o").iterdir()
    }
    run = run_file(tmp_path / "o")
    cells = {(r["engine"], r["load"], r["round"]) for r in run["results"]}
    assert cells == {(e, x, 1) for e in ("fake", "b") for x in ("all-at-once", "poisson-70%")}
    assert all(r["counts"] == run["results"][0]["counts"] for r in run["results"])
    assert run["settings"]["rounds"] == 1
    assert "--repeats 1" in run["settings"]["rounds_reason"]
    assert "fake" in done.stdout
    assert "o/run.json" in done.stdout


def test_progress_is_plain_ascii_lines_with_whole_names(call_apart: Call, small: list[str]) -> None:
    names = [f"a-rather-long-name-for-an-engine-{n}" for n in range(3)] + ["\u00fcml\u00e4ut"]
    done = call_apart(
        "run", "--engines", ",".join(f"{n}=fake" for n in names), *small, "--out", "o"
    )
    assert done.returncode == 0, done.stderr
    assert "\x1b" not in done.stdout + done.stderr
    assert (done.stdout + done.stderr).isascii()
    for name in names[:3]:
        assert f"all-at-once, round 1: {name}: done, 6/6 requests" in done.stderr
        assert name in done.stdout
    assert "\\xfcml\\xe4ut" in done.stderr


def test_relative_rate_is_the_same_for_all_engines_and_rounds(
    call: Call, tmp_path: Path, small: list[str]
) -> None:
    done = call("run", "--engines", "fake,b=fake[slots=2]", *small, "--repeats", "2", "--out", "o")
    assert done.returncode == 0, done.stderr
    run = run_file(tmp_path / "o")
    loads = {load["name"]: load["request_rate"] for load in run["settings"]["loads"]}
    first = [
        r["request_throughput_req_s"]
        for r in run["results"]
        if (r["load"], r["round"]) == ("all-at-once", 1)
    ]
    assert loads["all-at-once"] == "inf"
    assert loads["poisson-70%"] == pytest.approx(0.7 * max(first))
    schedules = {
        tuple(header_of(path)["requests"]["scheduled_s"])
        for path in (tmp_path / "o" / "raw").iterdir()
        if "poisson" in path.name
    }
    assert len(schedules) == 1


def test_all_at_once_arrives_at_zero(call: Call, tmp_path: Path, small: list[str]) -> None:
    done = call(
        "run", "--engines", "fake", *small, "--num-prompts", "64", "--request-rate", "inf",
        "--out", "o",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (raw,) = (tmp_path / "o" / "raw").iterdir()
    assert header_of(raw)["requests"]["scheduled_s"] == [0.0] * 64
    assert '"a":' not in raw.read_text()
    assert run_file(tmp_path / "o")["settings"]["loads"][0]["request_rate"] == "inf"


def header_of(raw: Path) -> Any:
    with raw.open() as lines:
        return json.loads(next(lines))


def test_request_rate_and_cap_are_the_only_load(
    call: Call, tmp_path: Path, small: list[str]
) -> None:
    done = call(
        "run", "--engines", "fake", *small, "--request-rate", "200", "--max-concurrency", "2",
        "--out", "o",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    run = run_file(tmp_path / "o")
    (load,) = run["settings"]["loads"]
    assert (load["request_rate"], load["max_concurrency"]) == (200, 2)
    assert [result["load_kind"] for result in run["results"]] == ["open"]


@pytest.mark.parametrize("clients", ["2", "8"])
def test_closed_loop_frees_slots_by_completions(
    call: Call, tmp_path: Path, small: list[str], clients: str
) -> None:
    """Known as one even where its clients are more than its requests."""
    done = call(
        "run", "--engines", "fake", *small, "--request-rate", "inf", "--max-concurrency", clients,
        "--out", "o",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (result,) = run_file(tmp_path / "o")["results"]
    assert (result["counts"]["ok"], result["load_kind"]) == (6, "closed")


def test_json_alone_is_on_stdout(call: Call, tmp_path: Path, small: list[str]) -> None:
    done = call("run", "--engines", "fake", *small, "--json", "-", "--out", "o")
    assert done.returncode == 0, done.stderr
    assert strict_json(done.stdout) == run_file(tmp_path / "o")
    assert "fake" in done.stderr


def test_json_is_written_to_a_file(call: Call, tmp_path: Path, small: list[str]) -> None:
    assert call("run", "--engines", "fake", *small, "--json", "mine.json").returncode == 0
    assert strict_json((tmp_path / "mine.json").read_text())["schema_version"]
    assert len(list((tmp_path / "results").iterdir())) == 1


def test_nothing_ok_is_exit_code_one_and_still_a_report(
    call: Call, tmp_path: Path, small: list[str]
) -> None:
    done = call("run", "--engines", "fake[fault=fail-all]", *small, "--out", "o")
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    first = run_file(tmp_path / "o")["results"][0]
    assert (first["counts"]["ok"], first["counts"]["failed"]) == (0, 6)
    assert first["ttft_s"]["p50"] is None
    assert first["output_throughput_tok_s"] == 0
    assert "connection refused" in (tmp_path / "o" / "report.md").read_text()


def test_strict_makes_suspect_a_failure(call: Call, small: list[str]) -> None:
    assert call("run", "--engines", "fake", *small, "--strict").returncode == 3


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        ("build", "broke while loading"),
        ("warm-up", "broke in the warm-up"),
        ("run", "broke [bold]in a step[/x]"),
        ("kill", "SIGKILL"),
    ],
)
def test_engine_that_breaks_is_a_failure_and_the_others_go_on(
    call: Call, tmp_path: Path, small: list[str], fault: str, error: str
) -> None:
    done = call("run", "--engines", f"bad=fake[fault={fault}],good=fake", *small, "--out", "o")
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    assert f"bad: failed: " in done.stderr  # noqa: F541
    assert error in done.stderr
    run = run_file(tmp_path / "o")
    assert run["settings"]["failures"][0]["engine"] == "bad"
    assert error in run["settings"]["failures"][0]["error"]
    good = [r for r in run["results"] if r["engine"] == "good"]
    assert [r["counts"]["ok"] for r in good] == [6, 6]
    for result in run["results"]:
        if result["engine"] == "bad":
            assert result["counts"]["ok"] == 0
            assert result["counts"]["failed"] == 6
    assert error in (tmp_path / "o" / "report.md").read_text().replace("\\", "")
    if fault == "kill":
        assert "about to need too much memory" in run["settings"]["failures"][0]["error"]
    else:
        assert "Traceback" in (tmp_path / "o" / "logs" / "bad.log").read_text()


def test_no_engine_left_is_exit_code_one(call: Call, tmp_path: Path, small: list[str]) -> None:
    done = call("run", "--engines", "fake[fault=build]", *small, "--out", "o")
    assert done.returncode == 1
    assert "broke while loading" in done.stderr
    assert run_file(tmp_path / "o")["results"] == []


def test_full_disk_is_a_sentence_and_what_was_written_stays(
    call: Call, tmp_path: Path, small: list[str]
) -> None:
    done = call("run", "--engines", "good=fake,b=fake[fault=disk]", *small,
                "--order", "fixed", "--out", "o")  # fmt: skip
    assert done.returncode == 2
    assert "No space left on device" in done.stderr.strip().splitlines()[-1]
    assert "Traceback" not in done.stderr
    assert call("report", "o").returncode == 0


def test_report_shows_a_run_again(call: Call, small: list[str]) -> None:
    ran = call("run", "--engines", "fake", *small, "--out", "o")
    again = call("report", "o")
    assert again.returncode == 0
    assert again.stdout.strip() in ran.stdout


def test_noise_of_libraries_goes_to_the_log(call: Call, tmp_path: Path, small: list[str]) -> None:
    done = call("run", "--engines", "fake", *small, "--out", "o")
    assert "library noise" not in done.stdout + done.stderr
    log = (tmp_path / "o" / "logs" / "fake.log").read_text()
    assert "library noise on stdout" in log
    assert "closed in good order" in log


def test_trace_is_played_at_its_own_times(call: Call, tmp_path: Path) -> None:
    (tmp_path / "trace.csv").write_text(
        "TIMESTAMP,ContextTokens,GeneratedTokens\n"
        "2023-11-16 18:00:00.0000000,5,3\n"
        "2023-11-16 18:00:00.0400000,6,2\n"
        "2023-11-16 18:00:00.1000000,7,1\n"
    )
    done = call(
        "run", "--engines", "fake", "--workload", "trace:trace.csv", "--trace-scale", "2",
        "--repeats", "1", "--out", "o",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (raw,) = (tmp_path / "o" / "raw").iterdir()
    assert header_of(raw)["requests"]["scheduled_s"] == pytest.approx([0.0, 0.08, 0.2])


def test_warm_up_is_whole_before_the_first_cell_and_short_later(
    call: Call, tmp_path: Path, small: list[str]
) -> None:
    done = call("run", "--engines", "fake", *small, "--output-len", "12", "--request-rate", "inf",
                "--repeats", "2", "--out", "o")  # fmt: skip
    assert done.returncode == 0, done.stderr
    log = (tmp_path / "o" / "logs" / "fake.log").read_text()
    steps = [line for line in log.splitlines() if line.startswith("run of")]
    assert steps == [f"run of {n} steps" for n in (12, 12, 8, 12)]
    assert [r["counts"]["ok"] for r in run_file(tmp_path / "o")["results"]] == [6, 6]


STEADY = "a=fake[step_ms=20],b=fake[step_ms=20]"
BRIEF = [
    *("--workload", "uniform", "--num-prompts", "4", "--input-len", "4", "--output-len", "3"),
    *("--num-warmups", "1", "--request-rate", "inf", "--out", "o"),
]


def test_rounds_end_at_the_look_at_which_the_interval_is_narrow(call: Call, tmp_path: Path) -> None:
    done = call("run", "--engines", STEADY, *BRIEF, "--until-ci", "90%")
    assert done.returncode == 0, done.stderr
    settings = run_file(tmp_path / "o")["settings"]
    assert (settings["until_ci"], settings["rounds"]) == (0.9, 5)
    assert "asked for with --until-ci 90%" in settings["rounds_reason"]
    assert "look after 5 rounds: intervals reach" in done.stderr
    assert all(c["confidence"] > 0.98 for c in run_file(tmp_path / "o")["comparisons"])


def test_rounds_go_on_to_the_most_where_the_interval_stays_wide(call: Call, tmp_path: Path) -> None:
    done = call("run", "--engines", STEADY, *BRIEF, "--until-ci", "0.0001%", "--repeats", "6")
    assert done.returncode == 0, done.stderr
    settings = run_file(tmp_path / "o")["settings"]
    assert (settings["rounds"], settings["rounds_reason"]) == (6, "asked for with --repeats 6")
    assert done.stderr.count("look after") == 1


def test_a_budget_ends_rounds_between_looks(call: Call, tmp_path: Path) -> None:
    done = call("run", "--engines", STEADY, *BRIEF, "--until-ci", "0.0001%", "--budget", "1s")
    assert done.returncode == 0, done.stderr
    settings = run_file(tmp_path / "o")["settings"]
    assert settings["rounds"] == 1
    assert "would pass the budget of 1 s" in settings["rounds_reason"]


@pytest.mark.parametrize(
    ("workload", "words"),
    [
        ("uniform", "that was meant to be cold"),
        ("shared-prefix", "the prompts have only"),
        ("multi-turn", "the prompts have only"),
    ],
)
def test_a_cache_that_was_left_warm_is_suspect_whatever_the_workload_shares(  # L1
    call: Call, tmp_path: Path, workload: str, words: str
) -> None:
    done = call(
        "run", "--engines", "warm=fake[fault=warm-cache],cold=fake", "--workload", workload,
        "--request-rate", "inf", "--num-prompts", "20", "--output-len", "2", "--repeats", "1",
        "--out", "o",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    results = run_file(tmp_path / "o")["results"]
    reasons = {result["engine"]: " ".join(result["verdict"]["reasons"]) for result in results}
    assert words in reasons["warm"]
    assert "prefix cache" not in reasons["cold"]


def test_a_number_changed_by_hand_is_refused_and_the_rows_give_it_back(
    call: Call, tmp_path: Path, small: list[str]
) -> None:
    ran = call("run", "--engines", "fake", *small, "--out", "o")
    path = tmp_path / "o" / "run.json"
    true = run_file(tmp_path / "o")
    edited = run_file(tmp_path / "o")
    edited["results"][0]["output_throughput_tok_s"] *= 2
    path.write_text(json.dumps(edited))
    refused = call("report", "o")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "o/run.json: it was changed after it was written" in refused.stderr
    assert "Take it away and call cbbench report" in refused.stderr
    path.unlink()
    again = call("report", "o")
    assert again.returncode == 0
    assert again.stdout.strip() in ran.stdout
    assert run_file(tmp_path / "o") == true


def test_a_run_of_an_older_schema_is_refused_in_a_sentence(
    call: Call, tmp_path: Path, small: list[str]
) -> None:
    call("run", "--engines", "fake", *small, "--out", "o")
    path = tmp_path / "o" / "run.json"
    path.write_text(json.dumps(run_file(tmp_path / "o") | {"schema_version": 0}))
    refused = call("report", "o")
    assert refused.returncode == 2
    assert "has schema_version 0, this cbbench reads 1" in refused.stderr
