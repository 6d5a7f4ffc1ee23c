"""Every metric that finished runs are compared and gated in: its name, value and good direction.

Those of a run's own comparison, and the rest of METRICS.md's that have a good direction. How busy a
slot or the memory was has none, so it is not here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from engines.registry import unknown_name
from harness.metrics.results import GroupResult, Preemptions
from harness.results.comparisons import GROUP_METRICS, Metric, quantile_metric
from harness.statistics import Direction

_SAMPLES: Final = (
    "ttft_s",
    "ttft_from_send_s",
    "tpot_s",
    "itl_s",
    "e2e_s",
    "queue_s",
    "max_stall_s",
    "lag_s",
)
_SUMMARIES: Final = ("mean", "p50", "p95", "p99", "max")
RESPONSE: Final = "response_s"  # what locust times; no cbbench run has it


def _preemptions(name: str, value: Callable[[Preemptions], int | None]) -> Metric:
    def of_result(result: GroupResult) -> float | None:
        return None if result.preemptions is None else value(result.preemptions)

    return Metric(f"preemptions.{name}", "lower", of_result)


_OTHERS: Final = (
    Metric("total_throughput_tok_s", "higher", lambda r: r.total_throughput_tok_s),
    *(quantile_metric(sample, summary) for sample in _SAMPLES for summary in _SUMMARIES),
    _preemptions("total", lambda p: p.total),
    _preemptions("requests", lambda p: p.requests),
    _preemptions("max_per_request", lambda p: p.max_per_request),
)
MEASURED: Final[Mapping[str, Metric]] = {m.name: m for m in (*GROUP_METRICS, *_OTHERS)}
_DIRECTIONS: Final[Mapping[str, Direction]] = {
    **{name: metric.direction for name, metric in MEASURED.items()},
    **{f"{RESPONSE}.{summary}": "lower" for summary in _SUMMARIES},
}
ALL_NAMES: Final = tuple(_DIRECTIONS)


def direction_of(name: str) -> Direction:
    """Raises `CbbenchError` for an unknown name, with the nearest known one."""
    if name not in _DIRECTIONS:
        raise unknown_name("metric", name, ALL_NAMES)
    return _DIRECTIONS[name]
