"""A run of cbbench as a `Source`. Pure: from `run.json`'s content alone.

`settings` is what some version wrote, or a hand: what is not of the expected shape is not known.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

from harness.compare.case import Case, Rate, Source, Values
from harness.compare.failures import with_failures
from harness.compare.metrics import MEASURED
from harness.metrics.results import CellResult
from harness.results.comparisons import Metric
from harness.results.saturation import kept_up
from harness.results.values import RunFile

_RUN_SETTINGS: Final = ("threads", "kv_memory", "num_warmups", "ignore_eos", "order", "goodput")
_ENVIRONMENT: Final = ("cpu", "cores_usable", "os", "python", "git_revision")


def source_of(run: RunFile, name: str) -> Source:
    """Every engine at every load, in the order they were run."""
    workload = _mapping(run.settings.get("workload"))
    found = {(result.engine, result.load): None for result in run.results}
    return Source(
        name=name,
        tool="cbbench",
        workload=_text(workload.get("name")),
        workload_hash=run.workload_hash,
        cases=tuple(
            _case(run, engine, load)
            for load in run.loads()
            for engine in run.labels()
            if (engine, load) in found
        ),
        facts=_run_facts(run),
        goodput=_text(run.settings.get("goodput")),
        failures=_failures(run),
    )


def _case(run: RunFile, engine: str, load: str) -> Case:
    every = run.cells(engine, load)
    measured = run.measured(engine, load)
    played = load_settings(run, load)
    return Case(
        engine=engine,
        load=load,
        request_rate=_rate(played.get("request_rate")),
        max_concurrency=_whole(played.get("max_concurrency")),
        rounds=tuple(cell.round for cell in measured),
        values={name: _values(metric, measured) for name, metric in MEASURED.items()},
        offered=sum(cell.counts.offered for cell in every),
        ok=sum(cell.counts.ok for cell in every),
        suspect=sum(c.verdict is not None and c.verdict.status == "SUSPECT" for c in every),
        unfinished=sum(not cell.finished for cell in every),
        broken=sum(cell.broken for cell in every),
        ended=any(cell.finished for cell in every),
        kept_up=kept_up(run, load, engine),
        ok_share=_ok_share(measured),
        with_failures=with_failures(measured),
        facts=_engine_facts(run, engine),
    )


def _ok_share(cells: Sequence[CellResult]) -> float | None:
    offered = sum(cell.counts.offered for cell in cells)
    return sum(cell.counts.ok for cell in cells) / offered if offered else None


def _failures(run: RunFile) -> dict[str, str]:
    """By engine, as far as the settings tell; those of the start first."""
    found = {str(key): str(why) for key, why in _mapping(run.settings.get("engine_errors")).items()}
    told = run.settings.get("failures")
    for item in map(_mapping, told if isinstance(told, list | tuple) else ()):
        engine, why = _text(item.get("engine")), _text(item.get("error"))
        if engine is not None and why is not None:
            found[engine] = why
    return found


def load_settings(run: RunFile, load: str) -> Mapping[str, Any]:
    """How a load was played; empty where the settings do not tell."""
    told = run.settings.get("loads")
    for item in told if isinstance(told, list | tuple) else ():
        if isinstance(item, Mapping) and item.get("name") == load:
            return item
    return {}


def _values(metric: Metric, cells: list[CellResult]) -> Values:
    found = (metric.value(cell) for cell in cells)
    return tuple(v if v is not None and math.isfinite(v) else None for v in found)


def _engine_facts(run: RunFile, engine: str) -> dict[str, str]:
    summary = run.engines.get(engine)
    if summary is None:
        return {}
    facts = {"engine": summary.name, "rows a step": summary.slots, "context": summary.max_model_len}
    told = {**facts, **summary.settings}
    return {key: str(value) for key, value in told.items() if value is not None}


def _run_facts(run: RunFile) -> dict[str, str]:
    model = _mapping(run.settings.get("model_info"))
    libraries = _mapping(run.environment.get("libraries"))
    facts: dict[str, Any] = {
        "model": model.get("name"),
        "parameters": model.get("num_parameters"),
        "device": model.get("device"),
        "dtype": model.get("dtype"),
        **{key: run.settings.get(key) for key in _RUN_SETTINGS},
        **{key: run.environment.get(key) for key in _ENVIRONMENT},
        **libraries,
    }
    return {key: str(value) for key, value in facts.items() if value is not None}


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _rate(value: object) -> Rate:
    if value == "inf" or value == math.inf:
        return "inf"
    if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        return float(value)
    return None


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
