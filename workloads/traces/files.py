"""Opening and reading the text files that users name, with errors that name them too."""

from __future__ import annotations

from pathlib import Path

from engines.api import CbbenchError


def read_text(path: Path, kind: str) -> str:
    """The file's text, line ends as they are, a byte order mark dropped.

    Raises `CbbenchError` for a file that is missing, unreadable, empty or not UTF-8.
    """
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise CbbenchError(
            f"{kind} {path} cannot be read: {error.strerror}; check the path"
        ) from error
    except UnicodeDecodeError as error:
        raise CbbenchError(
            f"{kind} {path} is not UTF-8 text (byte {error.start}); expected an uncompressed file"
        ) from error
    if not text.strip():
        raise CbbenchError(f"{kind} {path} is empty; expected at least one row")
    return text
