"""Ratios between finished runs: the first is the reference of every other.

Two runs were never run in turns, so their rounds are not paired, even where the requests are the
same; `harness.statistics` says what such an interval holds.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from statistics import median
from typing import Final

from engines.api import CbbenchError
from harness.compare.case import Case, Source, Values
from harness.compare.matching import check_workloads, match, narrowed
from harness.compare.metrics import ALL_NAMES, direction_of
from harness.statistics import Answer, Direction, compare_unpaired

_GOODPUT: Final = ("goodput_req_s", "attainment")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRatio:
    """One metric of two matched cases; named as in run.json's `comparisons` where it is the same.

    `definitions` says how a side's metric differs from cbbench's.
    """

    metric: str
    direction: Direction
    baseline_value: float | None
    engine_value: float | None
    baseline_rounds: int
    engine_rounds: int
    ratio: float | None
    low: float | None
    high: float | None
    answer: Answer | None
    detectable: float | None
    note: str
    definitions: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Matched:
    """Two cases side by side. `also_different`: facts that both have and that differ."""

    baseline_source: str
    baseline: Case
    engine_source: str
    engine: Case
    same_requests: bool
    also_different: tuple[str, ...]
    ratios: tuple[RunRatio, ...]


@dataclass(frozen=True, slots=True)
class RunsCompared:
    """`left_out` has a sentence for each case without a partner."""

    sources: tuple[Source, ...]
    matched: tuple[Matched, ...]
    left_out: tuple[str, ...]


def compare_runs(
    sources: Sequence[Source],
    *,
    unpaired: bool = False,
    engine: str | None = None,
    load: str | None = None,
) -> RunsCompared:
    """Raises `CbbenchError` for what must not be compared, before any ratio is computed."""
    if len(sources) < 2:
        raise CbbenchError(f"got {len(sources)} result to compare; give two or more, A B ...")
    reference, *others = (narrowed(source, engine, load) for source in sources)
    for other in others:
        check_workloads(reference, other, unpaired=unpaired)
    found = [(other, match(reference, other)) for other in others]
    return RunsCompared(
        (reference, *others),
        tuple(_matched(reference, a, b, other) for other, m in found for a, b in m.pairs),
        tuple(chain.from_iterable(m.left_out for _, m in found)),
    )


def _matched(reference: Source, a: Case, b: Case, other: Source) -> Matched:
    facts = (dict(reference.facts) | dict(a.facts), dict(other.facts) | dict(b.facts))
    return Matched(
        baseline_source=reference.name,
        baseline=a,
        engine_source=other.name,
        engine=b,
        same_requests=reference.workload_hash is not None
        and reference.workload_hash == other.workload_hash,
        also_different=also_different(*facts),
        ratios=tuple(_ratios(a, b, _metrics(reference, other))),
    )


def also_different(one: Mapping[str, str], other: Mapping[str, str]) -> tuple[str, ...]:
    """Facts that both have and that differ, each with its two values."""
    return tuple(
        f"{key} ({value} and {other[key]})"
        for key, value in one.items()
        if key in other and other[key] != value
    )


def _metrics(reference: Source, other: Source) -> list[str]:
    """All metrics; without goodput where the two were held to other bounds."""
    same_bounds = reference.goodput == other.goodput
    return [name for name in ALL_NAMES if same_bounds or name not in _GOODPUT]


def _ratios(a: Case, b: Case, metrics: Iterable[str]) -> Iterator[RunRatio]:
    for name in metrics:
        values_a, values_b = a.values.get(name, ()), b.values.get(name, ())
        if not any(value is not None for value in (*values_a, *values_b)):
            continue
        direction = direction_of(name)
        found = compare_unpaired(values_a, values_b, direction)
        sample = name.partition(".")[0]
        yield RunRatio(
            metric=name,
            direction=direction,
            baseline_value=middle(values_a),
            engine_value=middle(values_b),
            baseline_rounds=found.baseline_rounds,
            engine_rounds=found.engine_rounds,
            ratio=found.ratio,
            low=found.low,
            high=found.high,
            answer=found.answer,
            detectable=found.detectable,
            note=found.note,
            definitions=tuple(
                dict.fromkeys(c.definitions[sample] for c in (a, b) if sample in c.definitions)
            ),
        )


def middle(values: Values) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None
