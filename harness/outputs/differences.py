"""Where answers to the same request part: the first position, found on token ids alone.

Knows no model, so it cannot tell a near-tie from a fault.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from engines.api import RequestId
from harness.records import CellKey, CellRecord, RequestRecord

Ids = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Difference:
    """Two cells' answers to one request: alike in `common`, then `tokens`, each its own.

    A token of `None`: the answer had ended there.
    """

    request_id: RequestId
    reference: CellKey
    other: CellKey
    common: Ids
    tokens: tuple[int | None, int | None]

    @property
    def position(self) -> int:
        """In the answer, from 0."""
        return len(self.common)


@dataclass(frozen=True, slots=True)
class Compared:
    """What was set against what. `tokens` were found equal; `untold` engines tell no ids."""

    cells: int
    requests: int
    tokens: int
    differences: tuple[Difference, ...]
    untold: tuple[str, ...] = ()


def find_differences(cells: Sequence[CellRecord]) -> Compared:
    """Each answer that ended ok against the first cell's that has one, in the order of `cells`.

    A request is the same in every cell, so its answers are to be the same in all engines, loads
    and rounds. An engine that does not know token ids gives negative ones and is left out.
    """
    references: dict[RequestId, tuple[CellKey, Ids]] = {}
    compared: set[RequestId] = set()
    differences: list[Difference] = []
    untold: dict[str, None] = {}
    tokens = 0
    for cell in cells:
        if any(token < 0 for request in cell.requests for token in request.output_ids or ()):
            untold[cell.key.engine] = None
            continue
        for request in filter(_is_whole, cell.requests):
            ids = request.output_ids or ()
            name = request.request_id
            reference, expected = references.setdefault(name, (cell.key, ids))
            if reference == cell.key:
                continue
            compared.add(name)
            common = _common(expected, ids)
            tokens += len(common)
            if expected != ids:
                pair = (_at(expected, len(common)), _at(ids, len(common)))
                differences.append(Difference(name, reference, cell.key, common, pair))
    return Compared(len(cells), len(compared), tokens, tuple(differences), tuple(untold))


def _is_whole(request: RequestRecord) -> bool:
    return request.status == "ok" and request.output_ids is not None


def _common(one: Ids, other: Ids) -> Ids:
    if one == other:
        return one
    pairs = enumerate(zip(one, other, strict=False))
    return one[: next((i for i, (a, b) in pairs if a != b), min(len(one), len(other)))]


def _at(ids: Ids, position: int) -> int | None:
    return ids[position] if position < len(ids) else None
