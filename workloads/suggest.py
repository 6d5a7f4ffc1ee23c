"""The error for a name that is not among the known ones."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from engines.api import CbbenchError


def unknown(kind: str, name: str, known: Iterable[str], where: str = "") -> CbbenchError:
    """Names what was got, all that is known and the nearest of it."""
    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ";"
    return CbbenchError(f"{where}unknown {kind} {name!r}{hint} known: {', '.join(names)}")
