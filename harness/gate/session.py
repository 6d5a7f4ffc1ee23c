"""One check from its paths to its exit code: reads, checks, writes what was asked for.

Orchestrates; a file is known to be writable before anything is read.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from engines.api import CbbenchError
from harness.gate.baseline import read_baseline
from harness.gate.check import Checked, check
from harness.gate.encoding import checked_to_json
from harness.gate.junit import junit_text
from harness.gate.options import CheckOptions
from harness.gate.side import read_side
from harness.show.gate import check_markdown, check_text
from harness.show.printing import Printing, check_file, write_file


@dataclass(frozen=True, slots=True)
class CheckFiles:
    """`step_summary` is added to, and only where no `summary` was asked for."""

    junit: Path | None = None
    summary: Path | None = None
    step_summary: Path | None = None


def check_and_tell(
    results: Path, baseline: Path, options: CheckOptions, files: CheckFiles, printing: Printing
) -> int:
    """The exit code. Raises `CbbenchError` for what cannot be checked, or written."""
    for option, path in (("--junit", files.junit), ("--summary", files.summary)):
        if path is not None:
            check_file(option, path)
    checked = check(read_side(results), read_baseline(baseline), options)
    _write(checked, files)
    printing.show(
        text=lambda width, encoding: check_text(checked, width, encoding),
        markdown=lambda: check_markdown(checked),
        json=lambda: checked_to_json(checked),
    )
    return checked.exit_code


def _write(checked: Checked, files: CheckFiles) -> None:
    if files.junit is not None:
        write_file("--junit", files.junit, junit_text(checked))
    if files.summary is not None:
        write_file("--summary", files.summary, check_markdown(checked))
    elif files.step_summary is not None:
        _append(files.step_summary, check_markdown(checked))


def _append(path: Path, text: str) -> None:
    try:
        with path.open("a", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise CbbenchError(f"cannot write the step summary {path} ({error.strerror})") from error
