"""The folder of a run: its name, and whether it can be written, known before any model loads.

Never writes into a folder that holds something. What a run writes there is `results.file`'s.
"""

from __future__ import annotations

import hashlib
import re
import shutil
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final
from urllib.parse import quote

from engines.api import CbbenchError
from harness.records.schema import RAW_FOLDER

RESULTS: Final = Path("results")
LOGS: Final = "logs"


@dataclass(frozen=True, slots=True)
class RunFolder:
    """`path` exists, was empty and is writable. `made` says that it was not there before."""

    path: Path
    made: bool

    def log(self, label: str) -> Path:
        """Where the worker of an engine writes what its libraries print."""
        return self.path / LOGS / f"{quote(label, safe='')[:100]}.log"

    def discard(self) -> None:
        """Takes everything back, after a mistake that came out before anything was measured."""
        for child in self.path.iterdir():
            if child.is_dir():
                shutil.rmtree(child, ignore_errors=True)
            else:
                child.unlink(missing_ok=True)
        if self.made:
            self.path.rmdir()


def run_id(workload: str, settings_text: str, now: datetime) -> str:
    """`20261130-181500-chat-1f3a9c`: when, what, and a short hash of the settings."""
    name = re.sub(r"[^A-Za-z0-9-]+", "-", Path(workload).stem.split(":")[-1]).strip("-") or "run"
    digest = hashlib.sha256(settings_text.encode()).hexdigest()[:6]
    return f"{now:%Y%m%d-%H%M%S}-{name[:40]}-{digest}"


def claim(out: Path | None, identity: str) -> RunFolder:
    """Makes the folder: `out`, which must be new or empty, or `results/<identity>`.

    Raises `CbbenchError` when it holds something or cannot be written.
    """
    path = out if out is not None else _unused(RESULTS / identity)
    try:
        made = not path.exists()
        path.mkdir(parents=True, exist_ok=True)
        if any(path.iterdir()):
            raise CbbenchError(
                f"the run folder {path} is not empty; give a new one with --out, or leave it out"
            )
        (path / LOGS).mkdir()
        (path / RAW_FOLDER).mkdir()
        probe = path / ".writable"
        probe.write_bytes(b"x")
        probe.unlink()
    except OSError as error:
        raise CbbenchError(
            f"the run folder {path} cannot be written ({error.strerror}); give another with --out"
        ) from error
    return RunFolder(path, made)


def _unused(path: Path) -> Path:
    """`path`, or with a number behind it when two runs begin in one second."""
    candidate, number = path, 1
    while candidate.exists():
        number += 1
        candidate = path.with_name(f"{path.name}-{number}")
    return candidate
