"""`cbbench calibrate` on a fake engine: run after run, gone on with after an interrupt."""

from __future__ import annotations

import json
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

Start = Callable[..., "subprocess.Popen[str]"]
Call = Callable[..., "subprocess.CompletedProcess[str]"]

BRIEF = [
    *("calibrate", "--out", "c", "--engine", "fake[step_ms=5]", "--workload", "uniform"),
    *("--num-prompts", "2", "--repeats", "5"),
]


@pytest.fixture
def done(call: Call) -> subprocess.CompletedProcess[str]:
    return call(*BRIEF, "--runs", "1")


def test_every_run_is_told_and_then_what_they_say_together(
    done: subprocess.CompletedProcess[str], tmp_path: Path
) -> None:
    assert done.returncode == 0, done.stderr
    assert "run 1 of 1: " in done.stdout
    assert "fake[step_ms=5] against itself:" in done.stdout
    assert "of 1 runs (5% are expected; more than 1 would be a surprise)" in done.stdout
    assert "a slow-down of 10%, called worse:" in done.stdout
    run = json.loads((tmp_path / "c" / "run-001" / "run.json").read_text())
    assert (run["settings"]["rounds"], run["settings"]["seed"]) == (5, 1)
    assert {result["engine"] for result in run["results"]} == {"a", "b"}


def test_runs_that_are_there_count_and_those_cut_off_are_passed_over(
    done: subprocess.CompletedProcess[str], call: Call, tmp_path: Path
) -> None:
    (tmp_path / "c" / "run-002" / "raw").mkdir(parents=True)
    more = call(*BRIEF, "--runs", "2")
    assert more.returncode in (0, 1), more.stderr
    assert "run 1 of 2" not in more.stdout
    assert "run 2 of 2: " in more.stdout
    again = json.loads((tmp_path / "c" / "run-003" / "run.json").read_text())
    assert again["settings"]["seed"] == 3
    assert not (tmp_path / "c" / "run-002" / "run.json").exists()
    nothing_new = call(*BRIEF, "--runs", "2")
    assert "run 2 of 2" not in nothing_new.stdout
    assert "of 2 runs" in nothing_new.stdout


def test_runs_of_other_settings_are_not_mixed(
    done: subprocess.CompletedProcess[str], call: Call
) -> None:
    for other in (
        ("--num-prompts", "3"),
        ("--repeats", "6"),
        ("--engine", "fake"),
        ("--threads", "1"),
        ("--workload", "chat-mix"),
    ):
        refused = call(*BRIEF, *other, "--runs", "1")
        assert refused.returncode == 2, other
        assert "c holds runs of other settings; give another --out" in refused.stderr


def test_an_engine_that_does_nothing_has_no_figures(call: Call) -> None:
    refused = call(*BRIEF, "--engine", "fake[fault=fail-all]", "--runs", "1")
    assert refused.returncode == 2
    assert "expected five rounds or more in which something was ok" in refused.stderr


def test_an_interrupt_ends_it_and_keeps_the_runs_that_ended(start: Start, tmp_path: Path) -> None:
    slow = [*BRIEF, "--engine", "fake[step_ms=50]", "--runs", "3"]
    process = start(*slow)
    deadline_s = time.monotonic() + 60
    while not list((tmp_path / "c" / "run-001" / "raw").glob("*.jsonl")):
        assert time.monotonic() < deadline_s
        threading.Event().wait(0.05)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "the same command goes on where it was cut off" in err
    assert "Traceback" not in err
    assert "run 1 of 3" not in out
    assert not (tmp_path / "c" / "run-002").exists()
