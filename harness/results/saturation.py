"""Whether a load asks more than an engine can do, and with it which ratio is a run's main one.

At saturation engines are compared by throughput; below it throughput only repeats the offered rate,
so latency is compared.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from statistics import median
from typing import Final

from harness.results.values import Comparison, RunFile, finished_or_all

MAIN_SATURATED: Final = "output_throughput_tok_s"
MAIN_BELOW: Final = "e2e_s.p50"


def saturated(run: RunFile, load: str, engines: Iterable[str]) -> bool:
    """Whether a load asks more than at least one of the engines can do."""
    return any(
        kept_up(run, load, engine) is False
        or any(cell.load_kind != "open" for cell in run.cells(engine, load))
        for engine in engines
    )


def kept_up(run: RunFile, load: str, engine: str) -> bool | None:
    """Whether an engine kept up with the arrivals of an open-loop load; `None`: cannot be told.

    Where it was also given everything at once, its request rate there is what it can do. Else each
    cell says whether its work ended soon after its arrivals.
    """
    offered_req_s = _offered_req_s(run, load)
    at_once = [c for c in run.results if (c.engine, c.load_kind) == (engine, "at_once")]
    rates = [cell.request_throughput_req_s for cell in finished_or_all(at_once)]
    most_req_s = [rate for rate in rates if rate]
    if offered_req_s is not None and most_req_s:
        return offered_req_s <= median(most_req_s)
    answers = [cell.kept_up for cell in run.measured(engine, load)]
    if False in answers:
        return False
    return None if None in answers else True


def _offered_req_s(run: RunFile, load: str) -> float | None:
    """The load's finite rate, as the settings have it."""
    loads = run.settings.get("loads")
    for described in loads if isinstance(loads, list) else []:
        if isinstance(described, dict) and described.get("name") == load:
            rate = described.get("request_rate")
            return float(rate) if isinstance(rate, int | float) else None
    return None


def main_comparisons(run: RunFile, engines: Iterable[str]) -> list[Comparison]:
    """The main ratio of each pair of these engines.

    Output throughput at every load that saturates one of the two; where none does, median E2E at
    every load.
    """
    known = set(engines)
    whole = [
        item
        for item in run.comparisons
        if item.request_class is None and {item.baseline, item.engine} <= known
    ]
    found: list[Comparison] = []
    for pair in dict.fromkeys((item.baseline, item.engine) for item in whole):
        own = [item for item in whole if (item.baseline, item.engine) == pair]
        full = [item for item in own if saturated(run, item.load, pair)]
        metric = MAIN_SATURATED if full else MAIN_BELOW
        found += [item for item in full or own if item.metric == metric]
    return found


def widest_reach(comparisons: Sequence[Comparison]) -> float:
    """How far the widest interval reaches beyond its ratio, 0.05 for 5%; `inf` without any."""
    return max(map(_reach, comparisons), default=math.inf)


def _reach(comparison: Comparison) -> float:
    if comparison.ratio is None or comparison.high is None:
        return math.inf
    return comparison.high / comparison.ratio - 1
