"""`--help`, `--version` and the lists: quick, complete, and without a heavy library."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pytest

Call = Callable[..., "subprocess.CompletedProcess[str]"]

HEAVY = ("torch", "transformers", "numpy", "scipy", "pandas", "pyarrow", "rich")
PROBE = """
import sys
from harness.cli.main import run_command
code = run_command(sys.argv[1:])
print("loaded:", *sorted({name.partition(".")[0] for name in sys.modules}))
sys.exit(code)
"""


@pytest.mark.parametrize(
    "arguments", [["--help"], ["--version"], ["engines"], ["run", "--help"], ["model", "--help"]]
)
def test_nothing_heavy_is_loaded(arguments: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROBE, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    loaded = done.stdout.rpartition("loaded:")[2].split()
    assert "harness" in loaded
    assert [name for name in HEAVY if name in loaded] == []


def test_engines_are_listed_with_every_setting(call: Call) -> None:
    done = call("engines")
    assert done.returncode == 0
    for word in ("static", "dynamic", "continuous", "max_delay_ms=50", "policy=chunked (fixed)"):
        assert word in done.stdout
    assert "an engine for tests [/cb]" in done.stdout
    assert "slots=8" in done.stdout


def test_workloads_are_listed_with_lengths_and_loads(call: Call) -> None:
    done = call("workloads")
    assert done.returncode == 0
    for word in ("chat-mix", "all-at-once", "poisson-70%", "p95", "prompt", "answer"):
        assert word in done.stdout


def test_version_is_told(call: Call) -> None:
    done = call("--version")
    assert (done.returncode, done.stdout.split()[0]) == (0, "cbbench")


def test_no_command_shows_the_help_and_fails(call: Call) -> None:
    done = call()
    assert done.returncode == 2
    assert "Usage: cbbench" in done.stdout
