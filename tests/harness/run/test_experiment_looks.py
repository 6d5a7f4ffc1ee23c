"""Rounds that are added until intervals are narrow, on a fleet whose cells take no time."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from engines.api import EngineInfo, JsonValue, ModelInfo
from engines.clock import VirtualClock
from engines.registry import EngineEntry
from harness.records import CellSnapshot
from harness.results.file import RunFile, close_run
from harness.run.config import RunOptions, read_options
from harness.run.experiment import Experiment
from harness.run.fleet import EngineFailure
from harness.run.folder import RunFolder
from harness.run.interrupts import Interrupts
from harness.run.progress import ProgressBoard
from harness.show.report import finding, report_text
from harness.worker.protocol import CellDone, RunCell
from workloads.workload import open_workload

ENTRY = EngineEntry(name="one", summary="", settings=(), builder="nowhere:build", preset={})
NOISE = (1.0, 1.06, 0.95, 1.02, 0.98, 1.05, 0.97, 1.01)


class InstantFleet:
    """Plays each cell with its label's own pace; `breaks` names a round in which `c` is lost."""

    settings: Mapping[str, JsonValue] = {}

    def __init__(self, player, labels: tuple[str, ...], noise: float, breaks: int = 0) -> None:
        self._player = player
        self._noise = noise
        self._breaks = breaks
        self._labels = labels
        self.failures: dict[str, EngineFailure] = {}

    def build(self) -> Mapping[str, EngineInfo]:
        model = ModelInfo("none", 256, 512, (0,), (0, 1), 1, 64, "float32", "cpu")
        return {
            name: EngineInfo("one", self.settings, 512, 8, model=model) for name in self._labels
        }

    def encode(self, texts: list[str], *, chat: bool) -> list[list[int]]:
        raise AssertionError("nothing to encode")

    def run_cell(self, command: RunCell) -> CellDone | EngineFailure:
        key = command.key
        if key.engine == "c" and key.round == self._breaks:
            self.failures["c"] = EngineFailure("c", "run", "lost")
            return self.failures["c"]
        pace_s = NOISE[key.round % 8 if key.engine == "a" else (key.round + 3) % 8] ** self._noise
        events = [
            event
            for request in command.requests
            for event in self._player.answer(
                request.request_id, [pace_s * (n + 1) for n in range(request.max_tokens)]
            )
        ]
        self._player.record(
            command.requests, events, engine=key.engine, load=key.load, number=key.round
        )
        none = CellSnapshot(key, 1.0, 1, 1, {}, 0, 0, 1, None, None, None, 8, 0, 0)
        return CellDone(key, False, none)


class Notes:
    """A display that keeps the lines which stay, and acts on them."""

    def __init__(self, act: Callable[[str], None]) -> None:
        self.lines: list[str] = []
        self._act = act

    def update(self, run) -> None:
        pass

    def cell_ended(self, run, engine) -> None:
        pass

    def note(self, text: str) -> None:
        self.lines.append(text)
        self._act(text)

    def close(self) -> None:
        pass


@pytest.fixture
def measure(player, tmp_path: Path):
    """Runs an experiment and closes its folder; gives the run, its notes and its settings."""

    def run(
        until_ci: str,
        *,
        noise: float = 1.0,
        labels: tuple[str, ...] = ("a", "b"),
        breaks: int = 0,
        act: Callable[[Interrupts, str], None] = lambda interrupts, text: None,
    ) -> tuple[RunFile, list[str]]:
        engines = ",".join(f"{label}=one" for label in labels)
        options = RunOptions(
            engines, "uniform", num_prompts="2", input_len="4", output_len="2",
            request_rate="inf", until_ci=until_ci,
        )  # fmt: skip
        config = read_options(options, {"one": ENTRY})
        clock, interrupts = VirtualClock(), Interrupts()
        notes = Notes(lambda text: act(interrupts, text))
        board = ProgressBoard(notes, clock, workload="uniform", model="none", labels=labels)
        settings = Experiment(
            config, open_workload("uniform"), RunFolder(tmp_path, made=False),
            InstantFleet(player, labels, noise, breaks), board, interrupts, clock, {},
        ).run()  # fmt: skip
        return close_run(tmp_path, settings, {}), notes.lines

    return run


def test_quiet_rounds_end_at_the_first_look(measure):
    run, notes = measure("5%", noise=0.1)
    assert run.settings["rounds"] == 5
    assert "asked for with --until-ci 5%" in run.settings["rounds_reason"]
    assert len(notes) == 1
    assert notes[0].startswith("look after 5 rounds: intervals reach ")


def test_noisier_rounds_end_at_a_later_one_and_nobody_looks_in_between(measure):
    run, notes = measure("5%", noise=0.6)
    assert run.settings["rounds"] in (8, 12)
    looks = [5, 8, 12]
    expected = looks[: looks.index(run.settings["rounds"]) + 1]
    assert [int(note.split()[2]) for note in notes] == expected


def test_twenty_rounds_are_the_most(measure):
    run, notes = measure("0.01%")
    assert run.settings["rounds"] == 20
    assert run.settings["rounds_reason"] == "20 rounds are the most with --until-ci"
    assert len(notes) == 3


def test_an_interrupt_during_a_look_begins_no_other_round(measure):
    def interrupt(interrupts: Interrupts, text: str) -> None:
        interrupts.received = signal.SIGINT

    run, _ = measure("0.01%", act=interrupt)
    assert run.settings["rounds"] == 5
    assert run.settings["rounds_reason"] == "interrupted after round 5"
    assert {result.round for result in run.results} == {1, 2, 3, 4, 5}
    assert all(result.finished for result in run.results)


def test_an_engine_that_fell_out_is_not_waited_for(measure):
    run, notes = measure("5%", noise=0.1, labels=("a", "b", "c"), breaks=3)
    assert run.settings["rounds"] == 5
    assert "no interval" not in notes[-1]


def test_a_run_that_is_killed_says_how_many_rounds_it_had(measure, tmp_path):
    told = []

    def read(interrupts: Interrupts, text: str) -> None:
        told.append(json.loads((tmp_path / "settings.json").read_text())["settings"]["rounds"])

    measure("0.01%", act=read)
    assert told == [5, 8, 12]


def test_a_rule_that_finds_all_requests_alike_is_told_at_once_and_in_the_report(
    measure, monkeypatch
):
    monkeypatch.setattr(InstantFleet, "settings", {"order": "priority"})
    run, notes = measure("5%", noise=0.1)
    assert notes[0].startswith("warning: a: all requests of uniform have the same priority")
    assert notes[1].startswith("warning: b: ")
    for text in (" ".join(finding(run)), report_text(run)):
        assert text.count("order=priority decides as fcfs would") == 2
