"""What kind of thing a path is. What cannot even be looked at is the user's to mend, no defect."""

from __future__ import annotations

from pathlib import Path

from engines.api import CbbenchError


def is_folder(path: Path) -> bool:
    """Raises `CbbenchError` where it cannot be known: a closed folder, a name that is too long."""
    try:
        return path.is_dir()
    except OSError as error:
        raise cannot_look(path, error) from error


def is_file(path: Path) -> bool:
    """Raises like `is_folder`."""
    try:
        return path.is_file()
    except OSError as error:
        raise cannot_look(path, error) from error


def exists(path: Path) -> bool:
    """Raises like `is_folder`."""
    try:
        return path.exists()
    except OSError as error:
        raise cannot_look(path, error) from error


def cannot_look(path: Path, error: OSError) -> CbbenchError:
    why = error.strerror or type(error).__name__
    return CbbenchError(f"cannot look at {path} ({why}); give a path that can be read")
