"""Keeps places of this machine out of result files, which can be given to anyone.

Of a file that was asked for the name stays; in text of others the home and the current directory
are shortened. What stands on the screen or in a log is left as it is.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from engines.api import JsonValue

_PATH: Final = re.compile(r"(?:~[^/,\]\"]*|\.{1,2})?/")
_PATH_VALUE: Final = re.compile(
    rf'(?<==")(?:{_PATH.pattern})[^"]*|(?<==)(?:{_PATH.pattern})[^,\]"]*'
)

_COMMAND: Final = re.compile(r'\b(?:command|args)="[^"]*"')
_PATH_WORD: Final = re.compile(rf"(?<=[\s'\"=])(?:{_PATH.pattern})[^\s'\"]+")


def without_folders(spec: str) -> str:
    """An engine's spec with the bare name of each file that a setting gives by its path.

    Of a command line that is each word of it.
    """
    spec = _COMMAND.sub(lambda line: _PATH_WORD.sub(lambda word: _name(word[0]), line[0]), spec)
    return _PATH_VALUE.sub(lambda found: _name(found[0]), spec)


def plain_settings(settings: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """The same for settings that were read already."""
    return {key: _plain_value(value) for key, value in settings.items()}


def without_places(text: str) -> str:
    """Text with `.` for the current directory and `~` for the home directory."""
    for place, short in sorted(_places().items(), key=lambda item: -len(item[0])):
        text = re.sub(re.escape(place) + r"(?!\w)", short, text)
    return text


def _plain_value(value: JsonValue) -> JsonValue:
    if isinstance(value, str) and _PATH.match(value):
        return _name(value)
    return value


def _name(path: str) -> str:
    return Path(path).name or path


def _places() -> dict[str, str]:
    home = Path("~").expanduser()
    found = {home: "~", home.resolve(): "~", Path.cwd(): "."}
    return {str(place): short for place, short in found.items() if place.name}
