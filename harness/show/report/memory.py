"""What became of the memory for keys and values: a row an engine and load. No tables, no files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from harness.metrics.results import CellResult
from harness.show.report.words import MISSING, number, over_rounds, percent

_Value = Callable[[CellResult], float | None]


def _mebibytes(value: float | None) -> str:
    return number(None if value is None else value / 2**20)


def _swapped(cell: CellResult) -> float | None:
    return cell.preemptions.swapped_bytes if cell.preemptions else None


_COLUMNS: Final[tuple[tuple[str, _Value, Callable[[float | None], str]], ...]] = (
    ("residents, mean", lambda c: c.residents.mean if c.residents else None, number),
    ("residents, most", lambda c: c.residents.peak if c.residents else None, number),
    ("reserved", lambda c: c.kv_pool_used.mean if c.kv_pool_used else None, percent),
    ("of that held", lambda c: c.kv_utilisation.mean if c.kv_utilisation else None, percent),
    ("lost inside blocks", lambda c: c.kv_loss.inside_blocks if c.kv_loss else None, percent),
    ("to reservation", lambda c: c.kv_loss.reservation if c.kv_loss else None, percent),
    ("to fragmentation", lambda c: c.kv_loss.fragmentation if c.kv_loss else None, percent),
    ("swapped MiB", _swapped, _mebibytes),
)
MEMORY_TITLES: Final = tuple(title for title, _, _ in _COLUMNS)
MEMORY_INTRO: Final = (
    "Shares of the whole pool, weighted by the steps' time; held is a share of what is reserved, "
    "and what is lost to fragmentation is free. Swapped: to the host and back."
)


def memory_row(rounds: Sequence[CellResult]) -> list[str]:
    """A cell a title: the median over rounds, and the range."""
    if not rounds:
        return [MISSING] * len(_COLUMNS)
    return [over_rounds([value(cell) for cell in rounds], form) for _, value, form in _COLUMNS]
