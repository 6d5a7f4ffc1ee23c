"""Text prompts from a JSON-lines file: {"prompt": "...", "max_tokens": 64} on each line.

Reads and checks the file. Does not turn text into tokens: a worker does that, with its model's
tokenizer.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from engines.api import CbbenchError
from workloads.suggest import unknown
from workloads.traces.files import read_text

_KEYS: Final = ("prompt", "max_tokens")


@dataclass(frozen=True, slots=True)
class TextPrompt:
    """One line of the file. `max_tokens` is `None` where the line has none."""

    line: int
    text: str
    max_tokens: int | None = None


def read_prompts(path: Path) -> tuple[TextPrompt, ...]:
    """All prompts in the file's order; blank lines are skipped.

    Raises `CbbenchError` naming the file and the line.
    """
    lines = read_text(path, "prompt file").split("\n")  # a text may hold other line separators
    return tuple(
        _read_line(path, number, line) for number, line in enumerate(lines, 1) if line.strip()
    )


def _read_line(path: Path, number: int, line: str) -> TextPrompt:
    where = f"prompt file {path}, line {number}: "
    try:
        values = json.loads(line)
    except (json.JSONDecodeError, RecursionError) as error:
        raise CbbenchError(f"{where}not JSON ({error}); expected one object a line") from error
    if not isinstance(values, dict):
        raise CbbenchError(
            f'{where}got {type(values).__name__}; expected an object as in {{"prompt": "Hello"}}'
        )
    for key in values:
        if key not in _KEYS:
            raise unknown("key", key, _KEYS, where)
    return TextPrompt(number, _text(where, values), _max_tokens(where, values))


def _text(where: str, values: dict[str, object]) -> str:
    text = values.get("prompt")
    if not isinstance(text, str) or not text:
        raise CbbenchError(f'{where}"prompt" is {text!r}; expected a text that is not empty')
    return text


def _max_tokens(where: str, values: dict[str, object]) -> int | None:
    value = values.get("max_tokens")
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise CbbenchError(f'{where}"max_tokens" is {value!r}; expected a whole number >= 1')
    return value
