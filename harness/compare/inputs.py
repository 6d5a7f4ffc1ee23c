"""From a path to a `Source`: a run's folder or a `run.json` of it. Decides what a path holds.

Names that stand in output are the last part of a path, never a folder of this machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from engines.api import CbbenchError
from harness.compare.case import Source
from harness.compare.ours import source_of
from harness.records.parquet import RUN_FILE
from harness.results.file import read_run
from harness.results.values import RunFile, run_from_json

_EXPECTED = "expected the folder of a run, or a run.json"


def read_sources(paths: Sequence[Path]) -> list[Source]:
    """Each path's result under a name of its own, in order."""
    return [read_source(path, name) for path, name in zip(paths, short_names(paths), strict=True)]


def read_source(path: Path, name: str) -> Source:
    """Raises `CbbenchError` for what is no result."""
    return source_of(read_own(path), name)


def read_own(path: Path) -> RunFile:
    """A run of cbbench, from its folder or from its run.json alone."""
    if path.is_dir():
        return read_run(path)
    return run_from_json(read_text(path), path)


def read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        why = error.strerror or type(error).__name__
        raise CbbenchError(f"cannot read {path} ({why}); {_EXPECTED}") from error
    except UnicodeDecodeError as error:
        raise CbbenchError(f"cannot use {path}: it is not UTF-8 text; {_EXPECTED}") from error


def short_names(paths: Sequence[Path]) -> list[str]:
    """The last part of each path, with a number behind it where two are the same."""
    names: list[str] = []
    for path in paths:
        whole = path.resolve()
        plain = (whole.parent.name if whole.name == RUN_FILE else whole.name) or "run"
        seen = sum(name == plain or name.startswith(f"{plain} (") for name in names)
        names.append(plain if not seen else f"{plain} ({seen + 1})")
    return names
