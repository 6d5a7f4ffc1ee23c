"""`cbbench trace` and `--save-trace`, on runs of fake engines."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Call = Callable[..., "subprocess.CompletedProcess[str]"]


def processes(path: Path) -> list[str]:
    events: list[dict[str, Any]] = json.loads(path.read_text())["traceEvents"]
    return [e["args"]["name"] for e in events if e["name"] == "process_name"]


def test_a_run_can_be_traced_at_once_or_later(call: Call, tmp_path: Path, small: list[str]) -> None:
    done = call("run", "--engines", "fake,b=fake", *small, "--save-trace", "--out", "o")
    assert done.returncode == 0, done.stderr
    assert "trace: o/trace.json" in done.stdout
    at_once = tmp_path / "o" / "trace.json"
    assert len(processes(at_once)) == 4
    text = at_once.read_text()
    at_once.unlink()
    later = call("trace", "o")
    assert later.returncode == 0, later.stderr
    assert "events of 4 cells" in later.stdout
    assert at_once.read_text() == text
    one = call(
        "trace", "o", "--engine", "b", "--load", "all-at-once", "--round", "1", "-o", "x.json"
    )
    assert one.returncode == 0, one.stderr
    assert processes(tmp_path / "x.json") == ["b, all-at-once, round 1"]


def test_a_run_that_was_cut_can_be_traced(call: Call, tmp_path: Path, small: list[str]) -> None:
    assert call("run", "--engines", "fake", *small, "--out", "o").returncode == 0
    for name in ("run.json", "requests.parquet", "steps.parquet", "report.md"):
        (tmp_path / "o" / name).unlink()
    for path in (tmp_path / "o" / "raw").iterdir():
        path.write_bytes(path.read_bytes()[:-300])
    done = call("trace", "o")
    assert done.returncode == 0, done.stderr
    assert len(processes(tmp_path / "o" / "trace.json")) == 2


@pytest.mark.parametrize("arguments", [("nowhere",), ("o", "--engine", "c"), ("o", "-o", "no/x")])
def test_what_cannot_be_traced_is_told_in_a_line(
    call: Call, tmp_path: Path, small: list[str], arguments: tuple[str, ...]
) -> None:
    assert call("run", "--engines", "fake", *small, "--out", "o").returncode == 0
    done = call("trace", *arguments)
    assert done.returncode == 2
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1
    shutil.rmtree(tmp_path / "o")
