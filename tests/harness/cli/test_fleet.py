"""A worker that does not listen is ended within a bounded time, and its cell is marked."""

from __future__ import annotations

import math
import os
import signal
from pathlib import Path

import pytest

from engines.api import Request
from engines.registry import BuildContext, installed_engines, parse_engines
from harness.records import CellKey, read_cells
from harness.run.fleet import EngineFailure, Fleet
from harness.run.folder import claim
from harness.run.interrupts import Interrupts
from harness.worker.protocol import Progress, RunCell
from workloads.workload import Load


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
