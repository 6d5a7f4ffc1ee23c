"""Interrupts and sudden deaths: what was measured stays, and no process does."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from harness.records import read_cells

Start = Callable[..., "subprocess.Popen[str]"]
Call = Callable[..., "subprocess.CompletedProcess[str]"]

LIMIT_S = 60.0
LONG = [
    *("--workload", "uniform", "--num-prompts", "8", "--input-len", "4", "--output-len", "400"),
    *("--num-warmups", "0", "--request-rate", "inf", "--order", "fixed", "--out", "o"),
]


def wait_until(holds: Callable[[], bool]) -> None:
    pause = threading.Event()
    deadline_s = time.monotonic() + LIMIT_S
    while not holds():
        assert time.monotonic() < deadline_s, "it did not come to that"
        pause.wait(0.05)


def tokens_are_coming(folder: Path, engine: str) -> Callable[[], bool]:
    def holds() -> bool:
        files = list((folder / "o" / "raw").glob(f"{engine}.*.jsonl"))
        return bool(files) and files[0].read_bytes().count(b"\n") >= 3

    return holds


def gone(process: psutil.Process) -> bool:
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=["ctrl-c", "term"]
)
def test_interrupt_ends_in_order_and_keeps_what_was_measured(
    start: Start, call: Call, tmp_path: Path, number: signal.Signals, code: int
) -> None:
    process = start("run", "--engines", "fake,b=fake[step_ms=50]", *LONG, "--repeats", "1")
    wait_until(tokens_are_coming(tmp_path, "b"))
    workers = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(number)
    out, err = process.communicate(timeout=LIMIT_S)
    assert process.returncode == code, err
    assert "Traceback" not in err
    assert "interrupted: what was measured until then is in o" in out
    assert "cbbench report o" in out
    wait_until(lambda: all(map(gone, workers)))
    run = json.loads((tmp_path / "o" / "run.json").read_text())
    counts = {r["engine"]: r["counts"] for r in run["results"]}
    assert counts["fake"]["ok"] == 8
    assert counts["b"]["cancelled"] == 8
    assert run["settings"]["rounds_reason"] == "interrupted in round 1"
    assert (tmp_path / "o" / "report.md").stat().st_size > 0
    assert call("report", "o").returncode == 0


def test_an_interrupt_while_rounds_are_added_keeps_the_rounds_that_ended(
    start: Start, call: Call, tmp_path: Path
) -> None:
    short = [*LONG, "--output-len", "5", "--until-ci", "0.0001%"]
    process = start("run", "--engines", "a=fake[step_ms=30],b=fake[step_ms=30]", *short)
    wait_until(lambda: len(list((tmp_path / "o" / "raw").glob("b.*.jsonl"))) >= 6)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 130, err
    assert "Traceback" not in err
    assert "look after 5 rounds" in err
    run = json.loads((tmp_path / "o" / "run.json").read_text())
    assert run["settings"]["rounds"] >= 5
    assert run["settings"]["rounds_reason"].startswith("interrupted ")
    (pair,) = (c for c in run["comparisons"] if c["metric"] == "output_throughput_tok_s")
    assert pair["rounds"] >= 5
    assert pair["low"] is not None
    assert "interrupted: what was measured until then is in o" in out


def test_ctrl_c_of_a_terminal_reaches_the_workers_too_and_changes_nothing(
    start: Start, tmp_path: Path
) -> None:
    process = start("run", "--engines", "fake=fake[step_ms=50]", *LONG, "--repeats", "1")
    wait_until(tokens_are_coming(tmp_path, "fake"))
    for worker in psutil.Process(process.pid).children(recursive=True):
        worker.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 130
    assert "Traceback" not in err
    assert "fake: failed" not in err
    assert "Traceback" not in (tmp_path / "o" / "logs" / "fake.log").read_text()


def test_second_ctrl_c_ends_at_once_and_the_records_stay(start: Start, tmp_path: Path) -> None:
    process = start("run", "--engines", "fake=fake[step_ms=50,fault=deaf]", *LONG, "--repeats", "1")
    wait_until(tokens_are_coming(tmp_path, "fake"))
    workers = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(signal.SIGINT)
    assert not threading.Event().wait(1.0)
    assert process.poll() is None
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=5)
    assert process.returncode == 130
    assert "Traceback" not in err
    wait_until(lambda: all(map(gone, workers)))
    (cell,) = read_cells(tmp_path / "o")
    assert cell.interrupted
    assert sum(request.output_tokens for request in cell.requests) > 0


def test_interrupt_while_engines_load_keeps_nothing(start: Start, tmp_path: Path) -> None:
    process = start("run", "--engines", "fake=fake[fault=slow-load]", *LONG)
    log = tmp_path / "o" / "logs" / "fake.log"
    wait_until(lambda: log.is_file() and "library noise" in log.read_text())
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 130
    assert "nothing is kept" in err
    assert not (tmp_path / "o").exists()


def test_killed_parent_leaves_no_process_and_a_readable_run(
    start: Start, call: Call, tmp_path: Path
) -> None:
    process = start(
        "run", "--engines", "fake=fake[step_ms=50],b=fake[fault=child]", *LONG, "--repeats", "1"
    )
    wait_until(tokens_are_coming(tmp_path, "fake"))
    family = psutil.Process(process.pid).children(recursive=True)
    child = psutil.Process(int((tmp_path / "child.pid").read_text()))
    assert child in family
    process.kill()
    process.wait(timeout=LIMIT_S)
    wait_until(lambda: all(map(gone, family)))
    report = call("report", "o")
    assert report.returncode == 0
    assert "Traceback" not in report.stderr
    assert (tmp_path / "o" / "run.json").is_file()


def test_what_an_engine_started_goes_with_it(
    call: Call, tmp_path: Path, small: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CBBENCH_FAKE_CHILD", str(tmp_path / "child.pid"))
    assert call("run", "--engines", "fake[fault=child]", *small).returncode == 0
    number = int((tmp_path / "child.pid").read_text())
    wait_until(lambda: not psutil.pid_exists(number) or gone(psutil.Process(number)))


def test_worker_killed_from_outside_is_a_failure(start: Start, tmp_path: Path) -> None:
    process = start("run", "--engines", "a=fake[step_ms=20],b=fake", *LONG, "--repeats", "1")
    wait_until(tokens_are_coming(tmp_path, "a"))
    header = json.loads((tmp_path / "o" / "settings.json").read_text())
    assert header["settings"]["workload"]["hash"]
    os.kill(worker_of(process.pid, tmp_path / "o" / "logs" / "a.log"), signal.SIGKILL)
    _, err = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 0, err
    assert "a: failed: the worker process was ended by signal SIGKILL" in err
    run = json.loads((tmp_path / "o" / "run.json").read_text())
    counts = {r["engine"]: r["counts"] for r in run["results"]}
    assert counts["a"]["failed"] == 8
    assert counts["b"]["ok"] == 8


def worker_of(parent: int, log: Path) -> int:
    """The worker that writes to `log`."""
    for process in psutil.Process(parent).children(recursive=True):
        if Path(f"/proc/{process.pid}/fd/1").resolve() == log.resolve():
            return process.pid
    raise AssertionError("no such worker")
