"""`--format` and `--json`: the same content as text, Markdown or JSON, and where each goes.

Owns two streams and at most one file; knows nothing of what is shown. As in `cbbench run`, JSON on
stdout moves the text to stderr.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Final, TextIO

from engines.api import CbbenchError
from harness.paths import is_folder

FORMATS: Final = ("text", "markdown", "json")
_STDOUT: Final = "-"


class Printing:
    """Raises `CbbenchError` when it is made for a format or a file that cannot be."""

    def __init__(self, form: str, json: str | None, stdout: TextIO, stderr: TextIO) -> None:
        if form not in FORMATS:
            raise CbbenchError(f"--format is {form!r}; expected {', '.join(FORMATS)}")
        if json is not None and json != _STDOUT:
            check_file("--json", Path(json))
        self._form = form
        self._json = json
        self._stdout = stdout
        self._stderr = stderr

    def show(
        self,
        *,
        text: Callable[[int | None, str], str],
        markdown: Callable[[], str],
        json: Callable[[], str],
    ) -> None:
        """`text` is given the width (`None`: no terminal) and the encoding of its stream."""
        if self._json is not None and self._json != _STDOUT:
            write_file("--json", Path(self._json), json())
        json_on_stdout = self._json == _STDOUT or self._form == "json"
        out = self._stderr if self._json == _STDOUT else self._stdout
        if self._form == "markdown":
            out.write(markdown())
        elif self._form == "text":
            width = shutil.get_terminal_size().columns if out.isatty() else None
            out.write(text(width, out.encoding or "utf-8"))
        if json_on_stdout:
            self._stdout.write(json())


def check_file(option: str, path: Path) -> None:
    """Raises `CbbenchError` for what cannot become a file, before any work is done."""
    if is_folder(path) or not is_folder(path.parent):
        raise CbbenchError(f"{option} is {str(path)!r}; expected a file in an existing folder")


def write_file(option: str, path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise CbbenchError(f"{option}: cannot write {path} ({error.strerror})") from error
