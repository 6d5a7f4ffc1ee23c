"""A worker that does not listen is ended within a bounded time, and its cell is marked."""

from __future__ import annotations

import math
import os
import signal
import sys
from pathlib import Path

import pytest

from engines.api import Request
from engines.registry import BuildContext, installed_engines, parse_engines
from harness.records import CellKey, read_cells
from harness.run.fleet import EngineFailure, Fleet
from harness.run.folder import claim
from harness.run.interrupts import Interrupts
from harness.worker import process
from harness.worker.protocol import Progress, RunCell
from workloads.workload import Load

DRAINS = """
import pathlib, signal, sys, time
from http.server import BaseHTTPRequestHandler, HTTPServer

def drain(*_):
    time.sleep(1.5)
    pathlib.Path(sys.argv[1]).write_text("drained")
    sys.exit(0)

class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()

signal.signal(signal.SIGTERM, drain)
HTTPServer(("127.0.0.1", int(sys.argv[2])), Handler).serve_forever()
"""


@pytest.mark.loopback
def test_a_server_has_drained_when_its_fleet_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "CLOSE_WITHIN_S", 0.2)
    script, note = tmp_path / "server.py", tmp_path / "note"
    script.write_text(DRAINS)
    command = f"{sys.executable} {script} {note} {{port}}"
    specs = parse_engines(f'mine=server[command="{command}"]', installed_engines())
    folder = claim(tmp_path / "o", "")
    with (
        Interrupts() as interrupts,
        Fleet(
            specs,
            BuildContext(),
            folder,
            interrupts,
            tick=lambda: None,
            progress=lambda _: None,
        ) as fleet,
    ):
        assert list(fleet.build()) == ["mine"]
    assert note.read_text() == "drained"


def test_engine_that_ignores_a_stop_is_killed(
    tmp_path: Path, fake_plugin: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(fake_plugin))
    specs = parse_engines("deaf=fake[fault=deaf,step_ms=20]", installed_engines())
    folder = claim(tmp_path / "o", "")
    told: list[Progress] = []
    with Interrupts() as interrupts:

        def interrupt_once(message: Progress) -> None:
            told.append(message)
            if message.snapshot is not None and len(told) == 2:
                os.kill(os.getpid(), signal.SIGINT)

        fleet = Fleet(
            specs,
            BuildContext(),
            folder,
            interrupts,
            tick=lambda: None,
            progress=interrupt_once,
            stop_within_s=0.5,
        )
        with fleet:
            fleet.build()
            outcome = fleet.run_cell(
                RunCell(
                    key=CellKey("deaf", "all-at-once", 1),
                    requests=(Request("r", (2, 3), 100_000),),
                    load=Load("all-at-once", math.inf),
                    warmup=(),
                    folder=folder.path,
                    save_outputs=False,
                )
            )
        assert interrupts.exit_code == 130
    assert isinstance(outcome, EngineFailure)
    assert "did not stop within 0.5 s" in outcome.error
    (cell,) = read_cells(folder.path)
    assert cell.requests[0].output_tokens > 0
