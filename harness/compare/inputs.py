"""From a path to a `Source`: a run's folder, its `run.json`, or a file of another tool.

Names that stand in output are the last part of a path, never a folder of this machine.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from engines.api import CbbenchError
from harness.compare.case import Source
from harness.compare.ours import source_of
from harness.foreign import aiperf
from harness.foreign.formats import read_foreign
from harness.paths import is_folder
from harness.records.parquet import RUN_FILE
from harness.results.file import read_run
from harness.results.values import RunFile, run_from_json

_EXPECTED: Final = "expected the folder of a run, or a run.json"
_VERSION: Final = "schema_version"


def read_sources(paths: Sequence[Path]) -> list[Source]:
    """Each path's result under a name of its own, in order."""
    return [read_source(path, name) for path, name in zip(paths, short_names(paths), strict=True)]


def read_source(path: Path, name: str) -> Source:
    """Raises `CbbenchError` for what is no result."""
    if is_folder(path):
        return source_of(read_own(path), name)
    text = read_text(path)
    if _is_own(text):
        return source_of(run_from_json(text, path), name)
    return read_foreign(text, str(path), name)


def read_own(path: Path) -> RunFile:
    """A run of cbbench, from its folder or from its run.json alone."""
    if is_folder(path):
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


def _is_own(text: str) -> bool:
    """Whether it is a run.json of any version; aiperf's file has a `schema_version` too."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return False
    return isinstance(value, dict) and _VERSION in value and not aiperf.recognised(value)


def _resolved(path: Path) -> Path:
    """A ring of links leads nowhere, and is refused by whoever reads it."""
    try:
        return path.resolve()
    except (OSError, RuntimeError):
        return path.absolute()


def short_names(paths: Sequence[Path]) -> list[str]:
    """The last part of each path, with a number behind it where two are the same."""
    names: list[str] = []
    for path in paths:
        whole = _resolved(path)
        plain = (whole.parent.name if whole.name == RUN_FILE else whole.name) or "run"
        seen = sum(name == plain or name.startswith(f"{plain} (") for name in names)
        names.append(plain if not seen else f"{plain} ({seen + 1})")
    return names
