"""Latencies over all requests, those that were not ok as infinite. Nothing is measured here."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from harness.compare.case import Values
from harness.metrics.results import CellResult, FailureQuantiles, Quantiles

_QUANTILES: Final = ("p50", "p95", "p99")
_INFINITE: Final = ("mean", "max")  # one request without an end is enough


def with_failures(cells: Sequence[CellResult]) -> dict[str, Values]:
    """By metric a value a cell; empty where no cell had more than 1% that were not ok."""
    samples = {name: None for cell in cells for name in cell.with_failures or {}}
    return {
        f"{sample}.{summary}": tuple(_value(cell, sample, summary) for cell in cells)
        for sample in samples
        for summary in (*_QUANTILES, *_INFINITE)
    }


def _value(cell: CellResult, sample: str, summary: str) -> float | None:
    told: FailureQuantiles | None = (cell.with_failures or {}).get(sample)
    if told is None:
        ok: Quantiles | None = getattr(cell, sample)
        value: float | None = None if ok is None else getattr(ok, summary)
        return value
    if summary in _INFINITE:
        return math.inf
    quantile = getattr(told, summary)
    return math.inf if quantile == "inf" else quantile
