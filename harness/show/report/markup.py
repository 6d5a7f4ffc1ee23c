"""Markdown's own forms: tables, and outside text that must not be read as markup."""

from __future__ import annotations

from collections.abc import Sequence

from harness.show.report.words import plain


def markdown_table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    rule = ["---", *("---:" for _ in titles[1:])]
    return ["| " + " | ".join(row) + " |" for row in (titles, rule, *rows)]


def escaped(text: str) -> str:
    """Outside text on one line, with nothing in it that Markdown would read as its own."""
    return "".join("\\" + c if c in "\\`*_[]<>|#" else c for c in plain(text))
