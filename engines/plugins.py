"""Entry points: what other packages bring, found by group and name.

It finds and imports; what an entry means is for the registry that asked.
"""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points
from itertools import pairwise
from typing import TypeVar

from engines.api import CbbenchError

_Entry = TypeVar("_Entry")


def load_entries(group: str, kind: type[_Entry], noun: str) -> dict[str, _Entry]:
    """All entries of a group by name, in alphabetical order.

    Raises `CbbenchError` naming a plug-in that cannot be imported or is not a `kind`, or two of
    one name.
    """
    points = sorted(entry_points(group=group), key=lambda point: point.name)
    for one, other in pairwise(points):
        if one.name == other.name:
            raise CbbenchError(
                f"two plug-ins announce {_article(noun)} {one.name!r}: {_origin(one)} and "
                f"{_origin(other)}; uninstall one of them"
            )
    return {point.name: _load(point, kind, noun) for point in points}


def _load(point: EntryPoint, kind: type[_Entry], noun: str) -> _Entry:
    try:
        entry = point.load()
    except Exception as error:
        raise CbbenchError(
            f"{noun} plug-in {point.name!r} ({point.value}) cannot be imported: "
            f"{type(error).__name__}: {error}; repair or uninstall it"
        ) from error
    if not isinstance(entry, kind):
        raise CbbenchError(
            f"{noun} plug-in {point.name!r} ({point.value}) is a {type(entry).__name__}, "
            f"expected an {kind.__module__}.{kind.__name__}"
        )
    return entry


def _article(noun: str) -> str:
    return f"an {noun}" if noun[0] in "aeiou" else f"a {noun}"


def _origin(point: EntryPoint) -> str:
    """`package (module:ENTRY)`."""
    return f"{point.dist.name if point.dist else 'an unknown package'} ({point.value})"
