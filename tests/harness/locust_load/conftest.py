"""A scripted server and locust, each in a process of its own: gevent must not patch this one."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from engines.api import CbbenchError
from harness.locust_load.closing import Outcome
from harness.locust_load.layout import lay_out
from harness.locust_load.load_run import LoadRun
from harness.locust_load.messages import ToMaster, ToWorker
from harness.locust_load.options import ARGUMENTS, read_load_options
from harness.locust_load.player import Seat
from harness.locust_load.worker_side import WorkerSide

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


class Rig:
    """A master's part and workers' parts in this process, wired together without locust."""

    is_local = False
    are_ours = True

    def __init__(self, folder: Path, url: str, workers: int, users: int, **given: object) -> None:
        defaults = {argument.name: argument.default for argument in ARGUMENTS}
        given = {"workload": "uniform", "input_len": "8", "output_len": "4", **given}
        self.options = read_load_options(defaults | given | {"out": folder}, url, users)
        self.dead: set[str] = set()
        self.users_come_late = self.asked_for_users = 0
        self.lose_messages: list[tuple[str, type]] = []
        self.errors: list[CbbenchError] = []
        self.told: list[tuple[str, str]] = []
        self.complete = threading.Event()
        self.folder = folder
        self.sides = {name: self._side(name, users) for name in "abcdefgh"[:workers]}
        self.run = LoadRun(lay_out(self.options, "0"), self, self.complete.set, self._fail, "0")
        self.users = [
            threading.Thread(target=self._be_a_user, args=(side,), daemon=True)
            for side in self.sides.values()
            for _ in range(users)
        ]

    def _side(self, name: str, users: int) -> WorkerSide:
        return WorkerSide(
            lambda message: self._to_master(name, message),
            lambda: self.options,
            lambda: users,
            lambda options, request, row: self.told.append((name, request.request_id)),
        )

    def _be_a_user(self, side: WorkerSide) -> None:
        seat: Seat | None = None
        while (seat := side.play(seat)) is not None:
            pass

    def _fail(self, error: CbbenchError) -> None:
        self.errors.append(error)
        self.complete.set()

    def _to_master(self, name: str, message: ToMaster) -> None:
        if not self._is_lost(name, message):
            self.run.receive(name, message)

    def send(self, worker: str, message: ToWorker) -> None:
        if not self._is_lost(worker, message):
            self.sides[worker].receive(message)

    def _is_lost(self, worker: str, message: object) -> bool:
        if (worker, type(message)) in self.lose_messages:
            self.lose_messages.remove((worker, type(message)))
            return True
        return worker in self.dead

    def has_all_users(self) -> bool:
        self.asked_for_users += 1
        return self.asked_for_users > self.users_come_late

    def workers(self) -> list[str]:
        """Those whose users are known of: none while they come late."""
        late = self.asked_for_users <= self.users_come_late
        return [] if late else list(self.sides)

    def is_alive(self, worker: str) -> bool:
        return worker not in self.dead

    def start(self, *, users_are_there: bool = True) -> None:
        for user in self.users:
            user.start()
        self.run.start()
        if users_are_there:
            self.run.users_are_there()

    def finish(self, grace_s: float = 0.0) -> Outcome | None:
        self.run.stop(grace_s)
        for side in self.sides.values():
            side.end(0.0)
        for user in self.users:
            user.join(10)
        return self.run.close("utf-8")

    def play(self, patience_s: float = 30.0, grace_s: float = 0.0) -> Outcome:
        """A whole run; cut off when it takes longer than `patience_s`."""
        self.start()
        self.complete.wait(patience_s)
        outcome = self.finish(grace_s)
        assert outcome is not None
        return outcome

    @property
    def done(self) -> Done:
        return Done(0, "", "", self.folder)


@pytest.fixture
def rig(tmp_path: Path) -> Callable[..., Rig]:
    def make(url: str, *, workers: int = 1, users: int = 2, **given: object) -> Rig:
        return Rig(tmp_path / "run", url, workers, users, **given)

    return make
