"""The machine and the software of a run, as far as results depend on them.

No host name, no user, no path, no environment variable: a result file can be given to anyone.
torch is asked nothing; its version comes from the installed package's own description.
"""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final

import psutil

from engines.api import JsonValue

_LIBRARIES: Final = (
    "cbbench",
    "torch",
    "transformers",
    "tokenizers",
    "safetensors",
    "numpy",
    "numba",
    "scipy",
    "pydantic",
    "pyarrow",
    "triton",
    "vllm",
    "openvino",
)
_PROJECT: Final = Path(__file__).resolve().parent.parent
_LOAD_SAMPLE_S: Final = 0.2


def describe_environment(load_sample_s: float = _LOAD_SAMPLE_S) -> dict[str, JsonValue]:
    """Takes `load_sample_s` seconds to see what the machine does before the run."""
    memory = psutil.virtual_memory()
    return {
        "cpu": _cpu_model(),
        "cores_physical": psutil.cpu_count(logical=False),
        "cores_logical": psutil.cpu_count(logical=True),
        "cores_usable": _usable_cores(),
        "memory_bytes": memory.total,
        "memory_available_bytes": memory.available,
        "os": f"{platform.system()} {platform.release()}",
        "machine": platform.machine(),
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "libraries": _library_versions(),
        "git_revision": git_revision(_PROJECT),
        "cpu_busy_before": psutil.cpu_percent(interval=load_sample_s) / 100,
    }


def git_revision(folder: Path) -> str | None:
    """The commit that `folder` itself is the checkout of, with "+changes" when it has some."""
    if not (folder / ".git").exists():
        return None
    try:
        commit = _git(folder, "rev-parse", "HEAD")
        changed = _git(folder, "status", "--porcelain", "--untracked-files=no")
    except (OSError, subprocess.SubprocessError):
        return None
    return commit + ("+changes" if changed else "")


def _git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", *arguments], cwd=folder, capture_output=True, text=True, check=True, timeout=10
    )
    return done.stdout.strip()


def _library_versions() -> Mapping[str, str]:
    found = {}
    for name in _LIBRARIES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def _cpu_model() -> str | None:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or None
    for line in lines:
        key, _, value = line.partition(":")
        if key.strip().lower() in ("model name", "hardware"):
            return value.strip()
    return platform.processor() or None


def _usable_cores() -> int | None:
    """Cores that this process may run on, where the system says."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count()
