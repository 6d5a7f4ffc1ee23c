"""`cbbench run --save-plans` on the default model, and `cbbench replay` of what it wrote."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

Call = Callable[..., "subprocess.CompletedProcess[str]"]
ENGINES = (
    "small=continuous[order=fair,num_blocks=14,block_size=4,max_num_batched_tokens=32],"
    "static=loop[policy=static,max_num_seqs=4]"
)


@pytest.fixture
def saved(call: Call, tmp_path: Path) -> Path:
    done = call(
        *("run", "--engines", ENGINES, "--model", "tiny", "--dtype", "float32", "--threads", "1"),
        *("--workload", "uniform", "--num-prompts", "8", "--input-len", "12", "--output-len", "9"),
        *("--max-model-len", "60", "--num-warmups", "1", "--repeats", "1"),
        *("--save-plans", "--out", "o"),
    )
    assert done.returncode == 0, done.stderr
    return tmp_path / "o"


def test_real_runs_are_planned_again_and_a_changed_plan_is_found(call: Call, saved: Path) -> None:
    done = call("replay", "o")
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == 2 * 2
    assert all(": identical, " in line for line in lines)
    assert any('"preempt"' in line for line in (saved / "plans.jsonl").read_text().splitlines())

    one = call("replay", "o", "--engine", "static", "--load", "all-at-once", "--round", "1")
    assert one.stdout.startswith("static, all-at-once, round 1: identical, 18 plans in 18 steps")
    assert one.stdout.count("\n") == 1

    _add_a_token_to_the_budget(saved / "plans.jsonl")
    differs = call("replay", "o", "--engine", "small")
    assert differs.returncode == 1
    assert "differs after" in differs.stdout
    assert "work: " in differs.stdout
    assert call("replay", "o", "--engine", "static").returncode == 0

    unknown = call("replay", "o", "--engine", "statik")
    assert unknown.returncode == 2
    assert "no cell of engine 'statik'; there are engines" in unknown.stderr


def _add_a_token_to_the_budget(path: Path) -> None:
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for line in lines:
        if "v" in line and line["key"][0] == "small":
            line["info"]["settings"]["max_num_batched_tokens"] += 1
    path.write_text("".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines))


def test_a_run_without_plans_says_how_to_get_them(call: Call, small: list[str]) -> None:
    assert call("run", "--engines", "fake", *small, "--save-plans", "--out", "o").returncode == 0
    done = call("replay", "o")
    assert done.returncode == 2
    assert "--save-plans" in done.stderr
    assert "Traceback" not in done.stderr
