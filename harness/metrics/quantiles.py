"""Quantiles over raw values: linear interpolation, n beside them, infinity allowed."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Final, Literal

import numpy as np
import numpy.typing as npt

from harness.metrics.results import FailureQuantiles, Quantiles

LEAST_SAMPLES: Final = {"p95": 59, "p99": 299}


def quantile(ordered: Sequence[float] | npt.NDArray[np.float64], q: float) -> float | None:
    """The q-quantile of ascending values, as numpy's "linear"; `None` of none.

    Between a finite value and infinity lies infinity.
    """
    if not len(ordered):
        return None
    position = q * (len(ordered) - 1)
    below = math.floor(position)
    part = position - below
    low = float(ordered[below])
    if part == 0:
        return low
    high = float(ordered[below + 1])
    return high if math.isinf(high) else low + (high - low) * part


def summarise(
    values: Iterable[float | None] | npt.NDArray[np.float64], undefined: int = 0
) -> Quantiles:
    """Undefined values (`None`, NaN) are left out and counted, on top of `undefined`."""
    if isinstance(values, np.ndarray):
        given = values
    else:
        given = np.asarray([math.nan if v is None else v for v in values], dtype=np.float64)
    ordered = np.sort(given[~np.isnan(given)])
    n = int(ordered.size)
    undefined += int(given.size) - n
    if n == 0:
        return Quantiles(n=0, undefined=undefined)
    return Quantiles(
        n=n,
        mean=float(ordered.mean()),
        std=float(ordered.std(ddof=1)) if n > 1 else None,
        p50=quantile(ordered, 0.5),
        p95=quantile(ordered, 0.95),
        p99=quantile(ordered, 0.99),
        max=float(ordered[-1]),
        undefined=undefined,
        thin=tuple(name for name, least in LEAST_SAMPLES.items() if n < least),
    )


def with_failures(values: Sequence[float], failures: int) -> FailureQuantiles:
    """Quantiles in which each failure took for ever."""
    ordered = sorted(values) + [math.inf] * failures
    return FailureQuantiles(
        n=len(ordered),
        p50=_json_float(quantile(ordered, 0.5)),
        p95=_json_float(quantile(ordered, 0.95)),
        p99=_json_float(quantile(ordered, 0.99)),
    )


def _json_float(value: float | None) -> float | Literal["inf"] | None:
    return "inf" if value is not None and math.isinf(value) else value
