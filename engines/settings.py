"""Readers for the text of settings: each raises `ValueError` with what it expected."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

_UNITS: Final = {"": 1, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "KB": 1e3, "MB": 1e6, "GB": 1e9}
_TRUE: Final = ("true", "yes", "on", "1")
_FALSE: Final = ("false", "no", "off", "0")


def positive_int(text: str) -> int:
    """A whole number >= 1."""
    return _whole(text, 1)


def natural(text: str) -> int:
    """A whole number >= 0."""
    return _whole(text, 0)


def optional_positive_int(text: str) -> int | None:
    """A whole number >= 1, or `auto` for `None`."""
    if text.lower() == "auto":
        return None
    try:
        return _whole(text, 1)
    except ValueError:
        raise ValueError("a whole number >= 1, or 'auto'") from None


def non_negative_float(text: str) -> float:
    """A finite number >= 0."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise ValueError("a finite number >= 0")
    return value


def fraction(text: str) -> float:
    """A number from 0 to below 1."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < 1:
        raise ValueError("a number from 0 to below 1")
    return value


def boolean(text: str) -> bool:
    """`true` or `false`."""
    lowered = text.lower()
    if lowered not in _TRUE + _FALSE:
        raise ValueError("true or false")
    return lowered in _TRUE


def optional_boolean(text: str) -> bool | None:
    """`true`, `false`, or `auto` for `None`."""
    try:
        return None if text.lower() == "auto" else boolean(text)
    except ValueError:
        raise ValueError("true, false or auto") from None


def positive_float(text: str) -> float:
    """A finite number > 0."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 < value < float("inf"):
        raise ValueError("a finite number > 0")
    return value


def byte_size(text: str) -> int:
    """A size such as `512MiB`, `2GB` or a plain number of bytes."""
    digits = text.rstrip("KMGiBkmgb ")
    unit = text[len(digits) :].strip().upper()
    try:
        value = float(digits) * _UNITS[unit]
    except (ValueError, KeyError):
        value = 0.0
    if not 1 <= value < float("inf"):
        raise ValueError("a size such as 512MiB or 2GB")
    return int(value)


def optional_byte_size(text: str) -> int | None:
    """A size, or `auto` for `None`."""
    if text.lower() == "auto":
        return None
    return byte_size(text)


def one_of(*choices: str) -> Callable[[str], str]:
    """Exactly one of `choices`."""

    def parse(text: str) -> str:
        if text not in choices:
            raise ValueError("one of " + ", ".join(choices))
        return text

    return parse


def optional_one_of(*choices: str) -> Callable[[str], str | None]:
    """Exactly one of `choices`, or `auto` for `None`."""
    parse_one = one_of(*choices, "auto")

    def parse(text: str) -> str | None:
        return None if text == "auto" else parse_one(text)

    return parse


def _whole(text: str, least: int) -> int:
    try:
        value = int(text)
    except ValueError:
        value = least - 1
    if value < least:
        raise ValueError(f"a whole number >= {least}")
    return value
