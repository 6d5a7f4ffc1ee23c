"""Every metric, defined once, computed from raw records. Judging and showing happen elsewhere."""

from harness.metrics.cell import summarise_cell
from harness.metrics.goodput import Goodput, Slo, parse_goodput
from harness.metrics.results import CellResult, Counts, GroupResult, Quantiles, Verdict

__all__ = [
    "CellResult",
    "Counts",
    "Goodput",
    "GroupResult",
    "Quantiles",
    "Slo",
    "Verdict",
    "parse_goodput",
    "summarise_cell",
]
