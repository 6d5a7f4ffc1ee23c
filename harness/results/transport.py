"""What HTTP adds to an engine that was run both in process and behind a server.

A served engine says by its setting `serves` which spec it is; the in-process engine of that very
spec is what it is held against. Differences, not ratios: transport costs time per request.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median

from harness.metrics.results import CellResult
from harness.results.values import RunFile, TransportCost

_Value = Callable[[CellResult], float | None]


def transport_costs(run: RunFile) -> tuple[TransportCost, ...]:
    """One for each load and pair, over the rounds that both ended."""
    found = []
    for engine, served in _pairs(run):
        for load in run.loads():
            both = _both(run, engine, served, load)
            if both:
                found.append(_cost(load, engine, served, both))
    return tuple(found)


def _pairs(run: RunFile) -> list[tuple[str, str]]:
    labels = run.labels()
    return [
        (engine, served)
        for served in labels
        if (spec := run.engines[served].settings.get("serves"))
        for engine in labels
        if engine != served and _same(run.engines[engine].spec, str(spec))
    ]


def _same(one: str, other: str) -> bool:
    return "".join(one.split()) == "".join(other.split())


def _both(run: RunFile, engine: str, served: str, load: str) -> list[tuple[CellResult, CellResult]]:
    inside = {cell.round: cell for cell in run.cells(engine, load) if cell.finished}
    behind = {cell.round: cell for cell in run.cells(served, load) if cell.finished}
    return [(inside[number], behind[number]) for number in sorted(inside.keys() & behind.keys())]


def _cost(
    load: str, engine: str, served: str, both: Sequence[tuple[CellResult, CellResult]]
) -> TransportCost:
    return TransportCost(
        load=load,
        engine=engine,
        served=served,
        rounds=len(both),
        ttft_p50_s=_added(both, lambda cell: cell.ttft_s.p50),
        tpot_p50_s=_added(both, lambda cell: cell.tpot_s.p50),
        e2e_p50_s=_added(both, lambda cell: cell.e2e_s.p50),
        output_throughput_tok_s=_added(both, lambda cell: cell.output_throughput_tok_s),
    )


def _added(both: Sequence[tuple[CellResult, CellResult]], value: _Value) -> float | None:
    """The median over rounds of served minus in process."""
    differences = [
        after - before
        for inside, behind in both
        if (before := value(inside)) is not None and (after := value(behind)) is not None
    ]
    return median(differences) if differences else None
