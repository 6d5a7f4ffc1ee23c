"""Small pieces of text that every display shares. Pure; knows no terminal."""

from __future__ import annotations


def duration(seconds: float) -> str:
    """`42 s` or `3:05`."""
    whole = max(0, round(seconds))
    return f"{whole} s" if whole < 60 else f"{whole // 60}:{whole % 60:02d}"


def one_line(text: str) -> str:
    """Text from outside without line breaks and terminal controls; nothing else is changed."""
    return "".join(c if c.isprintable() else " " for c in text)


def counted(number: int, thing: str) -> str:
    """`1 step`, `2 steps`."""
    return f"{number} {thing}{'' if number == 1 else 's'}"
