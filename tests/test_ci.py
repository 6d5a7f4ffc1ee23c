"""What CI runs: the gate's script with a stand-in for cbbench, and the workflows' own commands."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from harness.cli.main import app
from harness.gate.baseline import read_baseline
from workloads.workload import ModelLimits, draw, open_workload

ROOT = Path(__file__).parents[1]
GATE = ROOT / ".ci" / "gate"
OWN = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def documented_workflow() -> str:
    text = (ROOT / "docs" / "ci.md").read_text(encoding="utf-8")
    (found,) = re.findall(r"^```yaml\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)
    return found


@pytest.fixture
def gate(tmp_path):
    """Runs `.ci/gate` with a `cbbench` that only writes down its words and leaves with a code."""
    stand_in = tmp_path / "cbbench"
    log = tmp_path / "log"
    log.touch()

    def run(*arguments: str, run_code: int = 0, check_code: int = 0):
        stand_in.write_text(
            f'#!/usr/bin/env bash\necho "$@" >> {shlex.quote(str(log))}\necho "said $1"\n'
            f'case "$1" in run) exit {run_code};; check) exit {check_code};; esac\n'
        )
        stand_in.chmod(0o755)
        environment = os.environ | {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
        done = subprocess.run(
            [GATE, *arguments], env=environment, capture_output=True, text=True, timeout=60
        )
        return done, [line.split()[0] for line in log.read_text().splitlines()]

    return run


@pytest.mark.parametrize(("check_code", "code"), [(0, 0), (1, 1), (2, 2), (3, 0)])
def test_the_gate_fails_on_regressions_and_mistakes_alone(gate, check_code, code):
    done, commands = gate(check_code=check_code)
    assert done.returncode == code
    assert commands == ["run", "check"]
    assert ("warning: the gate is inconclusive" in done.stdout) == (check_code == 3)


@pytest.mark.parametrize("run_code", [1, 2])
def test_the_gate_fails_with_what_the_run_said_when_it_could_not_measure(gate, run_code):
    done, commands = gate(run_code=run_code)
    assert done.returncode == run_code
    assert commands == ["run"]
    assert "said run" in done.stdout


def test_an_update_measures_and_checks_nothing(gate):
    done, commands = gate("update")
    assert (done.returncode, commands) == (0, ["run", "baseline"])


def test_the_gates_baseline_is_of_the_workload_that_it_runs():
    text = GATE.read_text(encoding="utf-8")
    path = ROOT / re.search(r"^baseline=(.*)$", text, re.MULTILINE)[1]
    given = dict(re.findall(r"--([a-z-]+) ([\w.]+)", text))
    drawn = draw(
        open_workload(given["workload"]),
        seed=0,
        limits=ModelLimits(4096, 4096, tuple(range(8))),  # those of the default model
        num_prompts=int(given["num-prompts"]),
        input_len=int(given["input-len"]),
        output_len=int(given["output-len"]),
        range_ratio=float(given["range-ratio"]),
    )
    (side, *_) = read_baseline(path).sides
    assert side.source.workload_hash == drawn.hash, "measure it anew with: .ci/gate update"
    assert {case.engine for case in side.source.cases} == {"static", "continuous"}


@pytest.mark.parametrize(
    "read",
    [documented_workflow, *(path.read_text for path in OWN)],
    ids=["documented", *(path.stem for path in OWN)],
)
def test_a_workflow_may_only_read(read):
    workflow = yaml.safe_load(read())
    assert workflow["permissions"] == {"contents": "read"}
    for job in workflow["jobs"].values():
        assert job["timeout-minutes"] <= 60


def test_what_is_slow_runs_every_night():
    (nightly,) = [path for path in OWN if path.stem == "nightly"]
    workflow = yaml.safe_load(nightly.read_text(encoding="utf-8"))
    assert workflow[True]["schedule"]  # YAML reads the word `on` as true
    steps = [step.get("run", "") for step in workflow["jobs"]["slow"]["steps"]]
    assert steps[-1] == "pytest -m slow"


def commands() -> list[str]:
    steps = yaml.safe_load(documented_workflow())["jobs"]["gate"]["steps"]
    script = "\n".join(step.get("run", "") for step in steps)
    script += "\n" + GATE.read_text(encoding="utf-8").replace("\n    --", " --")
    found = re.findall(r"\b(cbbench (?:run|check|baseline update) [^|)\n]*)", script)
    return [" ".join(words.split()) for words in found]


@pytest.mark.parametrize("command", commands())
def test_commands_of_ci_have_known_options(command):
    words = command.split()[1:]
    path = words[:2] if words[0] == "baseline" else words[:1]
    known = CliRunner().invoke(app, [*path, "--help"]).output
    options = [word for word in words if word.startswith("--")]
    assert options
    for option in options:
        assert option in known


def test_there_are_commands_to_check():
    assert len(commands()) >= 5
