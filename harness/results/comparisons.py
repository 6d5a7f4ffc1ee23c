"""Pairs of engines compared, metric by metric, round by round and request by request.

Which pairs there are and what a difference within one is due to is `pairs.py`'s matter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from harness.metrics.results import CellResult, GroupResult, Quantiles
from harness.records import CellRecord
from harness.results.by_request import MEASURES, pair_requests
from harness.results.pairs import Pair
from harness.results.values import Comparison, unfinished_note
from harness.statistics import CONFIDENCE, Direction, PairedRatio, compare_rounds, pool_rounds

_Value = Callable[[GroupResult], float | None]


@dataclass(frozen=True, slots=True)
class Metric:
    """A number of a cell (or of a class of it) that two engines are compared in."""

    name: str
    direction: Direction
    value: _Value


def quantile_metric(name: str, q: str) -> Metric:
    """A latency's mean, quantile or maximum, which is better when it is lower."""

    def value(result: GroupResult) -> float | None:
        sample: Quantiles | None = getattr(result, name)
        found: float | None = None if sample is None else getattr(sample, q)
        return found

    return Metric(f"{name}.{q}", "lower", value)


GROUP_METRICS: Final = (
    Metric("output_throughput_tok_s", "higher", lambda r: r.output_throughput_tok_s),
    Metric("request_throughput_req_s", "higher", lambda r: r.request_throughput_req_s),
    Metric("goodput_req_s", "higher", lambda r: r.goodput_req_s),
    Metric("attainment", "higher", lambda r: r.attainment),
    quantile_metric("ttft_s", "p50"),
    quantile_metric("ttft_s", "p95"),
    quantile_metric("tpot_s", "p50"),
    quantile_metric("tpot_s", "p95"),
    quantile_metric("itl_s", "p95"),
    quantile_metric("e2e_s", "p50"),
    quantile_metric("e2e_s", "p95"),
    quantile_metric("max_stall_s", "p95"),
    quantile_metric("max_stall_s", "max"),
)


def compare_cells(
    cells: Sequence[CellRecord],
    results: Sequence[CellResult],
    pairs: Sequence[Pair],
    confidence: float = CONFIDENCE,
) -> list[Comparison]:
    """Every pair at every load in every metric, then class by class, then by request.

    Rounds count in which both cells ended; where there is none, all that both have.
    """
    by_key = {(r.engine, r.load, r.round): r for r in results}
    records = {(c.key.engine, c.key.load, c.key.round): c for c in cells}
    found: list[Comparison] = []
    for load in dict.fromkeys(result.load for result in results):
        for pair in pairs:
            rounds, note = _paired_rounds(by_key, pair, load)
            if not rounds:
                continue
            a = [by_key[pair.baseline, load, number] for number in rounds]
            b = [by_key[pair.engine, load, number] for number in rounds]
            a_records = [records[pair.baseline, load, number] for number in rounds]
            b_records = [records[pair.engine, load, number] for number in rounds]
            own = [
                *_compare_groups(pair, load, None, a, b, confidence),
                *_compare_classes(pair, load, a, b, confidence),
                *_compare_requests(pair, load, a_records, b_records, confidence),
            ]
            found.extend(replace(item, note=_joined(item.note, note)) for item in own)
    return found


def _paired_rounds(
    by_key: Mapping[tuple[str, str, int], CellResult], pair: Pair, load: str
) -> tuple[list[int], str]:
    """The rounds to compare, in order, and a note on those that did not end."""
    own = [
        {n for engine, name, n in by_key if (engine, name) == (label, load)}
        for label in (pair.baseline, pair.engine)
    ]
    both = sorted(own[0] & own[1])
    ended = [
        number
        for number in both
        if by_key[pair.baseline, load, number].finished
        and by_key[pair.engine, load, number].finished
    ]
    if not ended:
        return both, unfinished_note(len(both), kept=True)
    return ended, unfinished_note(len(own[0] | own[1]) - len(ended), kept=False)


def _joined(*notes: str) -> str:
    return "; ".join(filter(None, notes))


def _compare_classes(
    pair: Pair, load: str, a: Sequence[CellResult], b: Sequence[CellResult], confidence: float
) -> Iterator[Comparison]:
    names = [name for name in a[0].classes if all(name in r.classes for r in (*a, *b))]
    if len(names) < 2:
        return
    for name in names:
        own_a, own_b = [r.classes[name] for r in a], [r.classes[name] for r in b]
        yield from _compare_groups(pair, load, name, own_a, own_b, confidence)


def _compare_groups(
    pair: Pair,
    load: str,
    request_class: str | None,
    a: Sequence[GroupResult],
    b: Sequence[GroupResult],
    confidence: float,
) -> Iterator[Comparison]:
    for metric in GROUP_METRICS:
        values_a = [metric.value(result) for result in a]
        values_b = [metric.value(result) for result in b]
        if any(value is not None for value in (*values_a, *values_b)):
            paired = compare_rounds(values_a, values_b, metric.direction, confidence)
            found = _comparison(pair, load, metric.name, metric.direction, paired, confidence)
            yield replace(
                found,
                request_class=request_class,
                baseline_value=pool_rounds(values_a).median,
                engine_value=pool_rounds(values_b).median,
            )


def _compare_requests(
    pair: Pair,
    load: str,
    a: Sequence[CellRecord],
    b: Sequence[CellRecord],
    confidence: float,
) -> Iterator[Comparison]:
    for name, measure in MEASURES.items():
        requests = pair_requests(a, b, measure)
        if requests.number:
            ones = [1.0] * len(requests.medians)
            paired = compare_rounds(ones, requests.medians, "lower", confidence)
            found = _comparison(pair, load, name, "lower", paired, confidence)
            yield replace(found, note=_joined(paired.note, requests.note))


def _comparison(
    pair: Pair,
    load: str,
    metric: str,
    direction: Direction,
    paired: PairedRatio,
    confidence: float,
) -> Comparison:
    """Of all requests together, without the two values."""
    return Comparison(
        kind=pair.kind,
        load=load,
        request_class=None,
        metric=metric,
        direction=direction,
        baseline=pair.baseline,
        engine=pair.engine,
        baseline_value=None,
        engine_value=None,
        rounds=paired.rounds,
        ratio=paired.ratio,
        low=paired.low,
        high=paired.high,
        answer=paired.answer,
        detectable=paired.detectable,
        note=paired.note,
        also_different=pair.also_different,
        confidence=confidence,
    )
