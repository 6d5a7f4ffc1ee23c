"""The API key: read from the environment, sent, and taken out of all that is written."""

from __future__ import annotations

import os
from typing import Final

from engines.api import CbbenchError

SHOWN_AS: Final = "[key]"
_CUT: Final = "..."  # as `completion.shortened` has it
_TELLING: Final = 4  # characters; fewer say nothing of a key


def read_key(variable: str | None) -> str | None:
    """The key from its variable. Raises `CbbenchError` when that is not set."""
    if variable is None:
        return None
    key = os.environ.get(variable, "").strip()
    if not key or not key.isascii() or not key.isprintable():
        raise CbbenchError(
            f"api_key_env={variable}, but the variable {variable} holds no key; "
            f"set it to one (printable ASCII), or leave api_key_env out"
        )
    return key


def without_key(text: str, key: str | None) -> str:
    """Also where the text was shortened in the middle of the key."""
    if not key:
        return text
    text = text.replace(key, SHOWN_AS)
    if _CUT in text:
        for length in range(len(key) - 1, _TELLING - 1, -1):
            text = text.replace(key[:length] + _CUT, SHOWN_AS + _CUT)
    return text
