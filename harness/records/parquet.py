"""Reads the closed form of a run: requests.parquet, steps.parquet and what their rows cannot hold.

The facts of a cell that belong to no row (engine, trailer, defects) stand in the file's own
metadata under `CELLS_KEY`, as a JSON list. Writing is `harness.results.tables`' work, since it adds
derived columns.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from engines.api import CbbenchError, RequestStats, StepRow
from harness.records.encoding import STATS_FIELDS, STEP_FIELDS, info_from_json, info_to_json
from harness.records.schema import CellKey, CellRecord, CellTrailer, Defects, RequestRecord

REQUESTS_FILE: Final = "requests.parquet"
STEPS_FILE: Final = "steps.parquet"
RUN_FILE: Final = "run.json"
CLOSED_FILES: Final = (REQUESTS_FILE, STEPS_FILE, RUN_FILE)
CELLS_KEY: Final = b"cbbench.cells"
_Key = tuple[str, str, int]


def cell_to_json(cell: CellRecord) -> dict[str, Any]:
    """What the tables' rows do not say of a cell."""
    return {
        "key": [cell.key.engine, cell.key.load, cell.key.round],
        "spec": cell.spec,
        "info": info_to_json(cell.info),
        "trailer": asdict(cell.trailer) if cell.trailer else None,
        "defects": asdict(cell.defects),
        "end_s": cell.end_s,
        "closed_loop": cell.closed_loop,
    }


def read_parquet_cells(run_folder: Path) -> list[CellRecord]:
    """The cells of a closed run, in the order of their keys.

    Raises `CbbenchError` for tables that another program wrote again.
    """
    requests_table = _read(run_folder / REQUESTS_FILE)
    steps_table = _read(run_folder / STEPS_FILE)
    try:
        cells = json.loads((requests_table.schema.metadata or {})[CELLS_KEY])
        requests, steps = _grouped(requests_table), _grouped(steps_table)
        return sorted((_cell(cell, requests, steps) for cell in cells), key=lambda cell: cell.key)
    except (KeyError, TypeError, ValueError) as error:
        raise CbbenchError(
            f"{run_folder / REQUESTS_FILE} is not as cbbench wrote it ({type(error).__name__}: "
            f"{error}); take the files as they were written, or close the run from its raw files"
        ) from error


def _cell(
    cell: Mapping[str, Any],
    requests: Mapping[_Key, list[dict[str, Any]]],
    steps: Mapping[_Key, list[dict[str, Any]]],
) -> CellRecord:
    key: _Key = tuple(cell["key"])
    trailer = cell["trailer"]
    return CellRecord(
        key=CellKey(*key),
        spec=cell["spec"],
        info=info_from_json(cell["info"]),
        requests=tuple(_request(row) for row in requests.get(key, ())),
        steps=tuple(_step(row) for row in steps.get(key, ())),
        trailer=CellTrailer(**_known(CellTrailer, trailer)) if trailer else None,
        defects=Defects(**_known(Defects, cell["defects"])),
        end_s=cell["end_s"],
        closed_loop=cell["closed_loop"],
    )


def _request(row: Mapping[str, Any]) -> RequestRecord:
    stats = {name: _plain(row[name]) for name in STATS_FIELDS if name in row}
    if row["lag_s"] is None:  # an engine that pulls has no sending of its own
        stats["sent_s"] = None
    output_ids = row.get("output_ids")
    return RequestRecord(
        request_id=row["request_id"],
        label=row["label"],
        session=row["session"],
        prompt_tokens=row["prompt_tokens"],
        max_tokens=row["max_tokens"],
        ignore_eos=row["ignore_eos"],
        scheduled_s=row["scheduled_s"],
        status=row["status"],
        finish_reason=row["finish_reason"],
        reason=row["reason"],
        stats=RequestStats(**stats),
        token_times_s=tuple(row["token_times_s"]),
        token_counts=tuple(row["token_counts"]),
        output_ids=None if output_ids is None else tuple(output_ids),
        arrived=row.get("arrived", True),
    )


def _plain(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _step(row: Mapping[str, Any]) -> StepRow:
    return StepRow(**{name: row[name] for name in STEP_FIELDS if name in row})


def _grouped(table: pa.Table) -> dict[_Key, list[dict[str, Any]]]:
    rows: dict[_Key, list[dict[str, Any]]] = defaultdict(list)
    for row in table.to_pylist():
        rows[row["engine"], row["load"], row["round"]].append(row)
    return rows


def _read(path: Path) -> pa.Table:
    try:
        return pq.read_table(path, partitioning=None)
    except (OSError, pa.ArrowException) as error:
        raise CbbenchError(
            f"cannot read {path}: {error}; expected a table that cbbench wrote, "
            "close the run again from its raw files or run it anew"
        ) from error


def _known(kind: Any, value: Mapping[str, Any]) -> dict[str, Any]:
    names = {field.name for field in fields(kind)}
    return {key: item for key, item in value.items() if key in names}
