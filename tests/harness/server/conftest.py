"""Real servers on loopback: `cbbench serve` in a process of its own, its engine in another."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
from tokenizers import Tokenizer

from engines.models.tiny_tokenizer import tiny_backend

PLUGIN = Path(__file__).parent / "plugin" / "cbbench_serving.py"
LIMIT_S = 60
COMMAND = [sys.executable, "-m", "harness.cli.main", "serve"]


@dataclass
class Server:
    """A running `cbbench serve`. `lines` is what it has printed, stderr included."""

    process: subprocess.Popen[str]
    lines: list[str] = field(default_factory=list)
    url: str = ""
    is_ready: threading.Event = field(default_factory=threading.Event)

    def read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.rstrip("\n"))
            if found := re.search(r"ready at (http://\S+)", line):
                self.url = found[1]
                self.is_ready.set()
        self.is_ready.set()

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    def wait(self) -> int:
        return self.process.wait(timeout=LIMIT_S)

    def post(self, path: str = "completions", **body: Any) -> httpx.Response:
        return httpx.post(f"{self.url}/v1/{path}", json=body, timeout=LIMIT_S, trust_env=False)

    def get(self, path: str) -> httpx.Response:
        return httpx.get(self.url + path, timeout=LIMIT_S, trust_env=False)

    def events(self, path: str = "completions", **body: Any) -> list[Any]:
        """The stream's events, the last of which is the text `[DONE]` if it came."""
        with self.stream(path, **body) as response:
            assert response.status_code == 200, response.read()
            assert response.headers["content-type"].startswith("text/event-stream")
            return [read_event(line) for line in response.iter_lines() if line]

    @contextmanager
    def stream(self, path: str = "completions", **body: Any) -> Iterator[httpx.Response]:
        url = f"{self.url}/v1/{path}"
        with (
            httpx.Client(timeout=LIMIT_S, trust_env=False) as client,
            client.stream("POST", url, json={"stream": True, **body}) as response,
        ):
            yield response

    @staticmethod
    def text_of(events: list[Any], place: int = 0) -> str:
        """All pieces of one choice, joined."""
        choices = [c for e in events if e != "[DONE]" for c in e["choices"] if c["index"] == place]
        return "".join(c["text"] if "text" in c else c["delta"].get("content", "") for c in choices)

    def metric(self, name: str, scrape: str | None = None, **labels: str) -> float:
        """The value of the only series of that name with these labels, now or in a scrape."""
        found = []
        for line in (scrape or self.get("/metrics").text).splitlines():
            series, _, value = line.rpartition(" ")
            if series.startswith(f"cbbench:{name}{{") and all(
                f'{key}="{text}"' in series for key, text in labels.items()
            ):
                found.append(float(value))
        assert len(found) == 1, f"{len(found)} series of {name} {labels}"
        return found[0]


def read_event(line: str) -> Any:
    assert line.startswith("data: "), line
    data = line.removeprefix("data: ")
    return data if data == "[DONE]" else json.loads(data)


Start = Callable[..., Server]


@pytest.fixture(scope="session")
def tokenizer() -> Tokenizer:
    return tiny_backend()


@pytest.fixture(scope="session")
def plugin_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for PYTHONPATH in which the engines `echo` and `hashing` are installed."""
    folder = tmp_path_factory.mktemp("plugin")
    metadata = folder / "cbbench_serving-1.0.dist-info"
    metadata.mkdir()
    shutil.copy(PLUGIN, folder)
    (metadata / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: cbbench-serving\nVersion: 1.0\n"
    )
    (metadata / "entry_points.txt").write_text(
        "[cbbench.engines]\necho = cbbench_serving:ECHO\nhashing = cbbench_serving:HASHING\n"
    )
    return folder


@contextmanager
def starting(plugin_path: Path) -> Iterator[Start]:
    """Starts servers; whatever still runs at the end is ended."""
    started: list[Server] = []

    def start(
        engine: str,
        *options: str,
        ready: bool = True,
        command: Sequence[str] = COMMAND,
        **variables: str,
    ) -> Server:
        python_path = os.pathsep.join([str(plugin_path), os.environ.get("PYTHONPATH", "")])
        process = subprocess.Popen(
            [*command, "--engine", engine, "--port", "0", "--threads", "1", *options],
            env=os.environ | {"PYTHONPATH": python_path} | variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        server = Server(process)
        started.append(server)
        threading.Thread(target=server.read, daemon=True).start()
        if ready:
            assert server.is_ready.wait(LIMIT_S), server.lines
            assert server.url, server.lines
        return server

    yield start
    for server in started:
        if server.process.poll() is None:
            server.process.kill()
        server.wait()
        assert server.process.stdout is not None
        server.process.stdout.close()


@pytest.fixture
def start(plugin_path: Path) -> Iterator[Start]:
    """For tests that end the server or need options of their own."""
    with starting(plugin_path) as start_one:
        yield start_one


@pytest.fixture(scope="session")
def echo(plugin_path: Path) -> Iterator[Server]:
    """A server that answers each prompt with its own tokens."""
    with starting(plugin_path) as start_one:
        yield start_one("echo")


@pytest.fixture(scope="session")
def slow_echo(plugin_path: Path) -> Iterator[Server]:
    """The same, a token each 30 ms, so that every token is a chunk."""
    with starting(plugin_path) as start_one:
        yield start_one("echo[step_ms=30]")


@pytest.fixture(scope="module")
def start_module(plugin_path: Path) -> Iterator[Start]:
    """Servers that a whole module shares."""
    with starting(plugin_path) as start_one:
        yield start_one
