"""How an exception of the engine's is told to others: short, printable, without our folders."""

from __future__ import annotations

from harness.places import without_places
from harness.show.text import one_line


def error_text(error: BaseException) -> str:
    """One printable line for an exception of any kind."""
    first = (str(error).strip() or "no message").splitlines()[0]
    return one_line(without_places(f"{type(error).__name__}: {first}"))
