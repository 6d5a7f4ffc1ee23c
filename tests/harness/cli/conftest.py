"""A plug-in with fake engines, and the command line as people call it: in a process of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from harness.cli.main import run_command

PLUGIN = Path(__file__).parent / "plugin"
ENTRY_POINTS = """[cbbench.engines]
fake = cbbench_fakes:FAKE
liar = cbbench_liars:LIAR
alters = cbbench_alters:ALTERS
"""
LIMIT_S = 60
SMALL = [
    *("--workload", "uniform", "--num-prompts", "6", "--input-len", "8", "--output-len", "4"),
    *("--num-warmups", "1", "--repeats", "1"),
]


@pytest.fixture
def fake_plugin(tmp_path: Path) -> Path:
    """A folder for PYTHONPATH in which `fake`, `liar` and `alters` are installed."""
    folder = tmp_path / "plugin"
    metadata = folder / "cbbench_fakes-1.0.dist-info"
    metadata.mkdir(parents=True)
    for module in PLUGIN.glob("*.py"):
        shutil.copy(module, folder)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: cbbench-fakes\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(ENTRY_POINTS)
    return folder


@pytest.fixture
def plain_environment(tmp_path: Path, fake_plugin: Path) -> dict[str, str]:
    """A log's surroundings: no terminal, no width, ASCII only."""
    environment = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "LINES")}
    return environment | {
        "PYTHONPATH": os.pathsep.join([str(fake_plugin), os.environ.get("PYTHONPATH", "")]),
        "TERM": "dumb",
        "PYTHONIOENCODING": "ascii",
        "CBBENCH_FAKE_CHILD": str(tmp_path / "child.pid"),
    }


Start = Callable[..., "subprocess.Popen[str]"]
Call = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def start(tmp_path: Path, plain_environment: dict[str, str]) -> Iterator[Start]:
    """Starts `cbbench ...`; whatever still runs at the test's end is ended."""
    started: list[subprocess.Popen[str]] = []

    def start_one(*arguments: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "harness.cli.main", *arguments],
            cwd=tmp_path,
            env=plain_environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield start_one
    for process in started:
        if process.poll() is None:
            process.kill()
        process.wait(timeout=LIMIT_S)
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                stream.close()


@pytest.fixture
def call(
    tmp_path: Path,
    fake_plugin: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Call:
    """Runs `cbbench ...` to its end, in this process; its workers have their own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(fake_plugin))
    monkeypatch.setenv("TERM", "dumb")

    def call_one(*arguments: str) -> subprocess.CompletedProcess[str]:
        code = run_command(list(arguments))
        out, err = capsys.readouterr()
        return subprocess.CompletedProcess(arguments, code, out, err)

    return call_one


@pytest.fixture
def call_apart(start: Start) -> Call:
    """Runs `cbbench ...` to its end, in a process of its own."""

    def call_one(*arguments: str) -> subprocess.CompletedProcess[str]:
        process = start(*arguments)
        out, err = process.communicate(timeout=LIMIT_S)
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    return call_one


@pytest.fixture
def small() -> list[str]:
    """Options of a run that takes a moment."""
    return list(SMALL)
