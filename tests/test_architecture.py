"""The arrows between the packages, walked in the source; and what importing a package may load."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("engines", "workloads", "harness")
FORBIDDEN = {"engines": ("workloads", "harness"), "workloads": ("harness",), "harness": ()}
TORCH_ONLY_IN = (
    "engines/generate.py",
    "engines/generate_*.py",
    "engines/generate/*",
    "engines/models/*",
    "engines/loop/build.py",
    "engines/loop/executors/*",
    "engines/loop/attention/*",
    "engines/peers/*",
)
PLAIN_IN = ("engines/loop/policies/*", "engines/loop/kv/*", "engines/loop/plan.py")


def sources() -> list[Path]:
    return sorted(path for name in PACKAGES for path in (ROOT / name).rglob("*.py"))


def imported(path: Path) -> Iterator[str]:
    """Every module that the file imports, anywhere in it."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} has a relative import"
            yield node.module or ""


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def roots(path: Path) -> set[str]:
    return {module.partition(".")[0] for module in imported(path)}


def matches(path: Path, patterns: tuple[str, ...]) -> bool:
    return any(fnmatch(relative(path), pattern) for pattern in patterns)


def test_no_arrow_turns_round() -> None:
    wrong = [
        f"{relative(path)} imports {root}"
        for path in sources()
        for root in sorted(roots(path) & set(FORBIDDEN[path.relative_to(ROOT).parts[0]]))
    ]
    assert wrong == []


def test_workloads_know_only_the_contract_of_engines() -> None:
    allowed = {"engines.api"}
    wrong = [
        f"{relative(path)} imports {module}"
        for path in (ROOT / "workloads").rglob("*.py")
        for module in imported(path)
        if module.partition(".")[0] == "engines" and module not in allowed
    ]
    assert wrong == []


@pytest.mark.parametrize("library", ["torch", "transformers", "triton"])
def test_model_libraries_stay_where_models_run(library: str) -> None:
    wrong = [
        relative(path)
        for path in sources()
        if library in roots(path) and not matches(path, TORCH_ONLY_IN)
    ]
    assert wrong == []


def test_locust_stays_in_its_locustfile() -> None:
    wrong = [
        relative(path)
        for path in sources()
        if roots(path) & {"locust", "gevent"} and relative(path) != "harness/locustfile.py"
    ]
    assert wrong == []


@pytest.mark.parametrize("library", ["torch", "numpy", "time", "random"])
def test_decisions_are_plain_python(library: str) -> None:
    wrong = [
        relative(path) for path in sources() if matches(path, PLAIN_IN) and library in roots(path)
    ]
    assert wrong == []


@pytest.mark.parametrize(
    "module",
    [*PACKAGES, "engines.api", "engines.registry", "engines.catalogue", "harness.cli.main"],
)
def test_importing_loads_nothing_heavy(module: str) -> None:
    code = f"import sys, {module}; print(*sorted(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    heavy = {"torch", "transformers", "numpy", "scipy", "pyarrow", "rich", "locust", "gevent"}
    assert heavy & set(done.stdout.split()) == set()
    assert done.stderr == ""


@pytest.mark.parametrize(
    "module",
    [
        "workloads.workload",
        "workloads.sources",
        "harness.run.session",
        "harness.worker.service",
        "harness.server.serve",
    ],
)
def test_the_parent_and_a_fresh_worker_load_no_model_library(module: str) -> None:
    code = f"import sys, {module}; print(*sorted(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert {"torch", "transformers", "locust", "gevent"} & set(done.stdout.split()) == set()
