"""Who is asked about differences, and what it means when nobody can answer."""

from __future__ import annotations

import signal
from dataclasses import replace
from pathlib import Path

import pytest

from engines.api import ModelInfo
from engines.registry import BuildContext
from harness.records import read_cells
from harness.run.folder import LOGS, RunFolder
from harness.run.interrupts import Interrupts
from harness.run.output_check import OutputTeacher, check_run, coarsest_type

MODEL = ModelInfo("m", 256, 64, (0,), (0, 1), 1, 64, "float32", "cpu")


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    (tmp_path / LOGS).mkdir()
    return RunFolder(tmp_path, made=False)


def play(player, engine: str, *answers: tuple[str, list[int]], dtype: str = "float32"):
    """Records one cell with these answers; the requests by their ids."""
    requests = [player.request(name, out=len(ids)) for name, ids in answers]
    events = []
    for name, ids in answers:
        tokens = player.tokens(0.5, {name: len(ids)})
        events += [replace(tokens, token_ids=(tuple(ids),)), player.end(0.5, name)]
    info = player.info(engine, model=replace(MODEL, dtype=dtype))
    player.record(requests, events, engine=engine, info=info, save_outputs=True)
    return {request.request_id: request for request in requests}


class Silent(OutputTeacher):
    """Nobody may be asked."""

    def ask(self, questions):
        raise AssertionError(f"asked about {questions}")


def teacher(folder: RunFolder, interrupts: Interrupts, model: str, kind=OutputTeacher):
    notes: list[str] = []
    context = BuildContext(model=model, dtype="float32", device="cpu", threads=1)
    return kind(context, folder, interrupts, notes.append), notes


def test_equal_answers_ask_nobody(player, folder: RunFolder) -> None:
    requests = play(player, "x", ("a", [1, 2]))
    play(player, "y", ("a", [1, 2]))
    asked, _ = teacher(folder, Interrupts(), "gone", Silent)
    assert check_run(folder, ["x", "y"], requests, asked).status == "equal"


@pytest.mark.parametrize(("labels", "first"), [(["x", "y"], ("x", "y")), (["y", "x"], ("y", "x"))])
def test_the_engine_named_first_is_the_reference(
    player, folder: RunFolder, labels: list[str], first: tuple[str, str]
) -> None:
    requests = play(player, "x", ("a", [1, 2]))
    play(player, "y", ("a", [1]))
    asked, _ = teacher(folder, Interrupts(), "gone", Silent)
    (finding,) = check_run(folder, labels, requests, asked).findings
    assert (finding.difference.reference.engine, finding.difference.other.engine) == first


def test_a_model_that_cannot_be_loaded_leaves_the_gate_open(player, folder: RunFolder) -> None:
    requests = play(player, "x", ("a", [1, 2]))
    play(player, "y", ("a", [1, 3]))
    asked, notes = teacher(folder, Interrupts(), str(folder.path / "gone"))
    found = check_run(folder, ["x", "y"], requests, asked)
    assert found.status == "not judged"
    assert "gone" in found.trouble
    assert str(folder.path) not in found.trouble
    assert notes == ["answers differ; asking the model alone about 1 difference"]


def test_an_interrupted_run_loads_no_model(player, folder: RunFolder) -> None:
    requests = play(player, "x", ("a", [1, 2]))
    play(player, "y", ("a", [1, 3]))
    interrupts = Interrupts()
    interrupts.received = signal.SIGINT
    asked, notes = teacher(folder, interrupts, str(folder.path / "gone"))
    found = check_run(folder, ["x", "y"], requests, asked)
    assert (found.status, found.trouble, notes) == ("not judged", "the run was interrupted", [])


@pytest.mark.parametrize(
    ("types", "coarsest"),
    [
        (["float32", "float32"], "float32"),
        (["float32", "bfloat16"], "bfloat16"),
        (["unknown", "float32"], "unknown"),
        ([], ""),
    ],
)
def test_the_gate_is_as_strict_as_the_coarsest_type(
    player, folder: RunFolder, types: list[str], coarsest: str
) -> None:
    for index, dtype in enumerate(types):
        play(player, f"e{index}", ("a", [1]), dtype=dtype)
    assert coarsest_type(read_cells(folder.path) if types else []) == coarsest
