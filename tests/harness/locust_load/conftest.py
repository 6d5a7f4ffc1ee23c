"""A scripted server and locust, each in a process of its own: gevent must not patch this one."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[3]
LIMIT_S = 60


@dataclass
class ScriptedServer:
    url: str
    process: subprocess.Popen[str]

    def log(self) -> dict[str, Any]:
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(f"{self.url}/log", timeout=10) as answer:
            return json.load(answer)

    def prompts(self, path: str = "/v1/completions") -> list[tuple[int, ...]]:
        """What was asked, without the question whether it takes token ids."""
        asked = [tuple(r["prompt"]) for r in self.log()["requests"] if r["path"] == path]
        return [prompt for prompt in asked if prompt != (9, 10, 11)]


@pytest.fixture
def serve() -> Iterator[Callable[..., ScriptedServer]]:
    """Starts a scripted server; its end comes with the closing of its stdin."""
    started: list[subprocess.Popen[str]] = []

    def start(*arguments: str) -> ScriptedServer:
        process = subprocess.Popen(
            [sys.executable, str(Path(__file__).parent / "scripted_server.py"), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        assert process.stdout is not None
        return ScriptedServer(f"http://127.0.0.1:{int(process.stdout.readline())}", process)

    yield start
    for process in started:
        process.communicate(timeout=10)


@pytest.fixture
def free_port() -> Callable[[], int]:
    def find() -> int:
        with closing(socket.socket()) as probe:
            probe.bind(("127.0.0.1", 0))
            return int(probe.getsockname()[1])

    return find


Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def locust(tmp_path: Path) -> Iterator[Start]:
    """Starts `locust -f .../locustfile.py ...`; whatever still runs at the test's end is ended."""
    started: list[subprocess.Popen[str]] = []
    plain = {name: v for name, v in os.environ.items() if not name.startswith("LOCUST")}

    def start(*arguments: str, **environment: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "locust", "-f", str(ROOT / "harness" / "locustfile.py")]
        process = subprocess.Popen(
            [*command, *arguments],
            cwd=tmp_path,
            env=plain | environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
        process.communicate(timeout=10)


@dataclass
class Done:
    code: int
    out: str
    err: str
    folder: Path

    @property
    def run(self) -> dict[str, Any]:
        return json.loads((self.folder / "run.json").read_text())

    @property
    def cell(self) -> dict[str, Any]:
        (cell,) = self.run["results"]
        return cell

    def rows(self) -> list[dict[str, Any]]:
        import pyarrow.parquet as pq

        return pq.read_table(self.folder / "requests.parquet").to_pylist()


@pytest.fixture
def load(locust: Start, tmp_path: Path) -> Callable[..., Done]:
    """Runs locust headless to its end."""
    folder = tmp_path / "run"

    def run(url: str, *arguments: str, **environment: str) -> Done:
        common = ("--headless", "--only-summary", "--host", url, "--out", str(folder))
        process = locust(*common, *arguments, **environment)
        out, err = process.communicate(timeout=LIMIT_S)
        return Done(process.returncode, out, err, folder)

    return run
