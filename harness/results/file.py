"""A run's folder, from its first byte to its closed form.

    open_run    settings.json, so that a killed run can still be read and reported
    close_run   requests.parquet, steps.parquet, run.json (atomically, last) and report.md

The names in run.json are METRICS.md's. `settings` is what the caller ran with, as JSON:

    workload       {name, seed, hash, settings, clipped, sessions, shared_prompt_share,
                    priorities {n: requests} where one is not 0}
    loads          [{name, request_rate (number or "inf"), max_concurrency}], in order
    engine_order   [label], in order; baseline: a label or null
    rounds, goodput (the text of --goodput or null), simulated (true in virtual time)
    engine_errors  {label: sentence} of engines that could not be started
    remarks        [sentence] of rules in force that the workload gives nothing to go by
    output_check   what --check-outputs found: {status, sentence, faults, differences, ...}

and anything else, which the report lists. All are optional to a reader.
"""

from __future__ import annotations

import json
import os
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from engines.api import CbbenchError, EngineInfo, JsonValue
from harness.looks import LOOK_CONFIDENCE
from harness.metrics import CellResult, parse_goodput, summarise_cell
from harness.metrics.classes import request_classes
from harness.metrics.quantiles import summarise
from harness.paths import is_file, is_folder
from harness.records import CellRecord, read_cells
from harness.records.encoding import info_to_json, strict_json
from harness.records.parquet import REQUESTS_FILE, RUN_FILE, STEPS_FILE
from harness.records.reader import read_raw_cells
from harness.records.schema import RAW_FOLDER
from harness.results.comparisons import compare_cells
from harness.results.pairs import choose_pairs
from harness.results.tables import write_requests, write_steps
from harness.results.transport import transport_costs
from harness.results.values import (
    SCHEMA_VERSION,
    EngineSummary,
    RunFile,
    WorkloadSummary,
    run_from_json,
    run_to_json,
)
from harness.show.report import report_text
from harness.statistics import CONFIDENCE
from harness.verdict import Evidence, judge_cell

SETTINGS_FILE: Final = "settings.json"
REPORT_FILE: Final = "report.md"

__all__ = [
    "RunFile",
    "close_run",
    "open_run",
    "read_run",
    "render_report",
    "summarise_so_far",
]


def open_run(
    folder: Path, settings: Mapping[str, JsonValue], environment: Mapping[str, JsonValue]
) -> None:
    """Makes the folder and writes settings.json, before the first cell."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _cannot_write(folder, error) from error
    content = strict_json({"settings": settings, "environment": environment})
    _write_whole(folder / SETTINGS_FILE, json.dumps(content, allow_nan=False, indent=1) + "\n")


def close_run(
    folder: Path,
    settings: Mapping[str, JsonValue] | None = None,
    environment: Mapping[str, JsonValue] | None = None,
) -> RunFile:
    """Reads the cells and writes the closed form. `None`: what `open_run` wrote.

    Works on an interrupted folder too, and again on a closed one. The raw files stay.
    """
    raw_left = is_folder(folder / RAW_FOLDER)
    cells = read_raw_cells(folder) if raw_left else read_cells(folder)
    run = _summarise(folder, cells, settings, environment)
    open_run(folder, run.settings, run.environment)  # so that run.json can be written anew
    try:
        write_requests(folder / REQUESTS_FILE, cells)
        write_steps(folder / STEPS_FILE, cells)
    except OSError as error:
        raise _cannot_write(folder, error) from error
    _write_whole(folder / RUN_FILE, run_to_json(run))
    _write_whole(folder / REPORT_FILE, report_text(run))
    return run


def read_run(folder: Path) -> RunFile:
    """run.json, or the same computed from what an interrupted run left."""
    path = folder / RUN_FILE
    if not is_file(path):
        return _summarise(folder, read_cells(folder), None, None)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CbbenchError(f"cannot read {path}: {error}; expected a run.json") from error
    return run_from_json(text, path)


def summarise_so_far(folder: Path, settings: Mapping[str, JsonValue]) -> RunFile:
    """What the raw files say up to now, for a run that goes on; writes nothing."""
    return _summarise(folder, read_raw_cells(folder), settings, {})


def render_report(folder: Path) -> str:
    """The text of report.md; writes nothing."""
    return report_text(read_run(folder))


def _summarise(
    folder: Path,
    cells: Sequence[CellRecord],
    settings: Mapping[str, JsonValue] | None,
    environment: Mapping[str, JsonValue] | None,
) -> RunFile:
    stored = _stored_settings(folder)
    chosen: dict[str, Any] = strict_json(stored["settings"] if settings is None else settings)
    surrounding: dict[str, Any] = strict_json(
        stored["environment"] if environment is None else environment
    )
    results = _results(cells, chosen)
    engines = {cell.key.engine: _engine(cell.spec, cell.info) for cell in cells}
    workload = chosen.get("workload") or {}
    run = RunFile(
        schema_version=SCHEMA_VERSION,
        workload_hash=workload.get("hash"),
        environment=surrounding,
        settings=chosen,
        results=results,
        comparisons=(),
        engines=engines,
        workload=_workload(cells),
    )
    pairs = choose_pairs(run.labels(), engines, chosen.get("baseline"))
    confidence = CONFIDENCE if chosen.get("until_ci") is None else LOOK_CONFIDENCE
    return replace(
        run,
        comparisons=tuple(compare_cells(cells, results, pairs, confidence)),
        transport=transport_costs(run),
    )


def _results(cells: Sequence[CellRecord], settings: Mapping[str, Any]) -> tuple[CellResult, ...]:
    """Summaries with their verdicts, for which time is summed over a cell's rounds."""
    goodput = parse_goodput(settings.get("goodput") or None)
    open_results = [summarise_cell(cell, goodput) for cell in cells]
    measured_s: dict[tuple[str, str], float] = defaultdict(float)
    for result in open_results:
        measured_s[result.engine, result.load] += result.makespan_s or 0.0
    simulated = bool(settings.get("simulated"))
    output_faults = {
        (fault["engine"], fault["load"], fault["round"]): fault["sentence"]
        for fault in (settings.get("output_check") or {}).get("faults") or ()
    }
    shared = (settings.get("workload") or {}).get("shared_prompt_share") or 0.0
    return tuple(
        replace(
            result,
            verdict=judge_cell(
                Evidence(
                    record=cell,
                    result=result,
                    measured_s=measured_s[result.engine, result.load],
                    simulated=simulated,
                    later=_later_rounds(result, open_results),
                    shared_prompt_share=shared,
                    output_fault=output_faults.get((result.engine, result.load, result.round)),
                )
            ),
        )
        for cell, result in zip(cells, open_results, strict=True)
    )


def _later_rounds(result: CellResult, results: Sequence[CellResult]) -> tuple[CellResult, ...]:
    """Of the same engine and load, where `result` is their first round; else none."""
    own = [r for r in results if (r.engine, r.load) == (result.engine, result.load)]
    is_first = result.round == min(r.round for r in own)
    return tuple(r for r in own if r.round > result.round) if is_first else ()


def _engine(spec: str, info: EngineInfo) -> EngineSummary:
    plain = info_to_json(info)
    return EngineSummary(
        spec=spec,
        name=info.name,
        settings=plain["settings"],
        max_model_len=info.max_model_len,
        slots=info.slots,
        kv_tokens=info.kv_tokens,
        model=plain["model"],
        notes=info.notes,
    )


def _workload(cells: Sequence[CellRecord]) -> WorkloadSummary | None:
    """Lengths are the same in every cell, so the first one tells."""
    if not cells:
        return None
    requests = cells[0].requests
    return WorkloadSummary(
        requests=len(requests),
        prompt_tokens=summarise(request.prompt_tokens for request in requests),
        output_tokens=summarise(request.max_tokens for request in requests),
        classes=dict(Counter(request_classes(requests))),
    )


def _stored_settings(folder: Path) -> dict[str, Any]:
    """What `open_run` wrote; empty for a folder whose settings.json is missing or broken."""
    empty: dict[str, Any] = {"settings": {}, "environment": {}}
    try:
        stored = json.loads((folder / SETTINGS_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return empty
    if not isinstance(stored, dict):
        return empty
    return empty | {key: value for key, value in stored.items() if isinstance(value, dict)}


def _write_whole(path: Path, text: str) -> None:
    """The file is the old one or the new one, never half of it."""
    unfinished = path.with_name(path.name + ".tmp")
    try:
        with unfinished.open("w", encoding="utf-8", newline="\n") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(path)
    except OSError as error:
        raise _cannot_write(path, error) from error


def _cannot_write(path: Path, error: OSError) -> CbbenchError:
    why = error.strerror or type(error).__name__
    return CbbenchError(
        f"cannot write {path}: {why}; the raw records are kept, free some space and close the "
        "run again"
    )
