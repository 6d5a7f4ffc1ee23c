"""Every `check`, `baseline` and `compare` of the documents is run and leaves with its exit code."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
FOREIGN = ROOT / "tests" / "harness" / "foreign" / "data"
FIVE = [10.0, 10.05, 9.95, 10.02, 9.98]
RUNS = {
    "before": {"static": FIVE, "continuous": [2 * v for v in FIVE]},
    "now": {"static": FIVE[::-1], "continuous": [2.01 * v for v in FIVE]},
    "slower": {"static": FIVE, "continuous": [1.7 * v for v in FIVE]},
    "noisy": {"static": FIVE, "continuous": [15.0, 25.0, 18.0, 22.0, 20.0]},
}


def documented() -> list[tuple[str, str, int]]:
    found = []
    for name in ("ci.md", "comparing.md"):
        text = (ROOT / "docs" / name).read_text(encoding="utf-8")
        lines = re.findall(r"^ {4}(cbbench (?:check|baseline|compare) .*)$", text, re.MULTILINE)
        for line in lines:
            code = re.search(r"# exit code (\d)$", line)
            found.append((name, line, int(code[1]) if code else 0))
    return found


@pytest.fixture
def results(make_run, tmp_path, monkeypatch, call):
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)
    for name, engines in RUNS.items():
        make_run(f"results/{name}", engines)
    paced = [{"name": "poisson-2", "request_rate": 2.0, "max_concurrency": None}]
    make_run("results/paced", RUNS["now"], load="poisson-2", loads=paced)
    for path in FOREIGN.iterdir():
        shutil.copy(path, tmp_path)
    (tmp_path / "results" / "baselines").mkdir()
    done = call("baseline", "update", "results/before", "--baseline", "results/baselines/main.json")
    assert done.returncode == 0


@pytest.mark.parametrize(("document", "line", "code"), documented())
def test_a_documented_command_leaves_with_its_code(call, results, document, line, code):
    done = call(*shlex.split(line, comments=True)[1:])
    assert done.returncode == code, done.stderr


def test_all_four_exit_codes_are_documented():
    assert {code for document, _, code in documented() if document == "ci.md"} == {0, 1, 2, 3}
