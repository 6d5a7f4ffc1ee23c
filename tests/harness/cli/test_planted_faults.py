"""A catalogue of faults: each is planted in a whole run, and the verdict tells it by its name.

Every run is made by `cbbench run` with workers of its own; the engine is an honest one with a
single lie. What else a brief run on a busy machine is suspected of is passed over, no more.
"""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.records import read_cells

Call = Callable[..., "subprocess.CompletedProcess[str]"]

BRIEF = [
    *("--workload", "uniform", "--num-prompts", "6", "--input-len", "8", "--output-len", "4"),
    *("--request-rate", "inf", "--num-warmups", "1", "--out", "o"),
]
PASSED_OVER = ("s were measured over all rounds", "of the CPU")


def run(call: Call, lie: str, *options: str) -> subprocess.CompletedProcess[str]:
    return call("run", "--engines", f"liar[lie={lie}]", *BRIEF, *options)


def reasons(folder: Path) -> dict[int, list[str]]:
    """What each round is suspected of."""
    results: list[dict[str, Any]] = json.loads((folder / "o" / "run.json").read_text())["results"]
    told = {}
    for result in results:
        verdict = result["verdict"]
        assert (verdict["status"] == "SUSPECT") == bool(verdict["reasons"])
        told[result["round"]] = [
            reason for reason in verdict["reasons"] if not any(x in reason for x in PASSED_OVER)
        ]
    return told


@pytest.fixture
def report(tmp_path: Path) -> Callable[[], str]:
    return lambda: (tmp_path / "o" / "report.md").read_text().replace("\\", "")


def test_an_honest_engine_is_suspected_of_nothing(call: Call, tmp_path: Path) -> None:
    done = run(call, "none", "--repeats", "5")
    assert done.returncode == 0, done.stderr
    assert reasons(tmp_path) == {number: [] for number in range(1, 6)}


@pytest.mark.parametrize(
    ("lie", "reason"),
    [
        ("sleepy-client", "the client sent late: lag p99 is "),
        ("short-answers", "6 ok requests did not give the number of output tokens asked for"),
        ("drops", "1 of 6 requests were not ok"),
        (
            "lost-positions",
            "the ledger does not add up: steps executed 12 first-time output positions, requests "
            "say 18",
        ),
        (
            "other-positions",
            "the ledger does not add up: step 2 was given 7 positions, its ledger has 6",
        ),
        ("counts-twice", "Little's law is off by 100.0%: "),
        ("clock-set-back", "the wall clock and the monotonic clock parted by 10000 ms"),
        ("clock-set-ahead", "the wall clock and the monotonic clock parted by 250 ms"),
        ("talks-on", "the engine sent events that cannot be: 6 with tokens after a request's end"),
    ],
)
def test_a_lie_is_told_by_its_name_and_is_the_only_reason(
    call: Call, tmp_path: Path, report: Callable[[], str], lie: str, reason: str
) -> None:
    done = run(call, lie, "--repeats", "1")
    assert done.returncode == 0, done.stderr
    ((found,),) = reasons(tmp_path).values()
    assert found.startswith(reason)
    assert reason in report()
    assert "SUSPECT" in done.stdout


def test_a_prefix_cache_left_warm_shows_in_the_second_round(call: Call, tmp_path: Path) -> None:
    run(call, "warm-prefixes", "--repeats", "2")
    told = reasons(tmp_path)
    assert told[1] == []
    assert told[2] == ["87.5% of prompt tokens came from a prefix cache that was meant to be cold"]


def test_cold_weights_make_the_first_round_suspect_alone(call: Call, tmp_path: Path) -> None:
    run(call, "cold-weights", "--repeats", "6")
    told = reasons(tmp_path)
    (cold,) = told.pop(1)
    assert cold.startswith("the first round was a cold one: its mean E2E is ")
    assert set(itertools.chain(*told.values())) == set()


def test_without_a_warm_up_every_round_is_suspect(call: Call, tmp_path: Path) -> None:
    run(call, "none", "--num-warmups", "0", "--repeats", "2")
    assert reasons(tmp_path) == {1: ["there was no warm-up"], 2: ["there was no warm-up"]}


def test_a_brief_run_says_that_it_is_too_short(
    call: Call, tmp_path: Path, report: Callable[[], str]
) -> None:
    run(call, "none", "--repeats", "1")
    assert "s were measured over all rounds, expected at least 5 s" in report()


def test_a_clock_set_back_changes_no_duration(call: Call, tmp_path: Path) -> None:  # J5
    run(call, "clock-set-back", "--repeats", "1")
    (cell,) = read_cells(tmp_path / "o")
    for request in cell.requests:
        assert request.scheduled_s <= request.token_times_s[0]
        assert sorted(request.token_times_s) == list(request.token_times_s)
        assert request.token_times_s[-1] < 5
    assert all(row.end_s >= row.start_s for row in cell.steps)
    result = json.loads((tmp_path / "o" / "run.json").read_text())["results"][0]
    assert 0 < result["makespan_s"] < 5
    assert 0 < result["ttft_s"]["p50"] < 5


@pytest.fixture
def busy_neighbour() -> Iterator[None]:
    """A program of its own that keeps a CPU busy, which is all that this test may use."""
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(allowed)})
    code = "import time; until = time.monotonic() + 60\nwhile time.monotonic() < until: pass"
    hog = subprocess.Popen([sys.executable, "-c", code])
    yield
    os.sched_setaffinity(0, allowed)
    hog.kill()
    hog.wait()


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="no CPU can be shared on purpose")
def test_a_busy_neighbour_is_told_with_his_share(
    call_apart: Call, busy_neighbour: None, tmp_path: Path, report: Callable[[], str]
) -> None:
    done = call_apart("run", "--engines", "liar[step_ms=100]", *BRIEF, "--repeats", "1")
    assert done.returncode == 0, done.stderr
    (verdict,) = (
        r["verdict"] for r in json.loads((tmp_path / "o" / "run.json").read_text())["results"]
    )
    (told,) = (reason for reason in verdict["reasons"] if "of the CPU" in reason)
    share = int(told.removeprefix("others used or stole ").removesuffix("% of the CPU"))
    assert share > 50
    assert told in report()


@pytest.mark.parametrize(("strict", "code"), [((), 0), (("--strict",), 3)])
def test_strict_turns_suspicion_into_an_exit_code(
    call: Call, strict: tuple[str, ...], code: int
) -> None:
    assert run(call, "drops", "--repeats", "1", *strict).returncode == code
