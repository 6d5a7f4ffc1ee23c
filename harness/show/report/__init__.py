"""The report of a run."""

from __future__ import annotations

from harness.run_file import RunFile


def comparison_text(run: RunFile, width: int | None = None, encoding: str = "utf-8") -> str:
    """The comparison as plain lines for terminals and logs; names and numbers are never cut.

    `width` of `None`: 80. Characters that `encoding` lacks are replaced by ASCII ones.
    """
    raise NotImplementedError


def finding(run: RunFile) -> str:
    """The answer in a few sentences, and how sure it is."""
    raise NotImplementedError
