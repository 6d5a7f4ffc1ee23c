"""Writes requests.parquet and steps.parquet: the raw rows, with what metrics say of each request.

The columns named by METRICS.md come first; those after them let a reader rebuild the record.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from engines.api import StepRow
from harness.metrics import latency
from harness.metrics.classes import request_classes
from harness.records import CellRecord, RequestRecord
from harness.records.parquet import CELLS_KEY, cell_to_json

_KEY: Final = (("engine", pa.string()), ("load", pa.string()), ("round", pa.int32()))
_Column = tuple[str, pa.DataType, Callable[[RequestRecord], Any]]

_REQUEST_COLUMNS: Final[tuple[_Column, ...]] = (
    ("status", pa.string(), lambda r: r.status),
    ("reason", pa.string(), lambda r: r.reason),
    ("prompt_tokens", pa.int64(), lambda r: r.prompt_tokens),
    ("output_tokens", pa.int64(), lambda r: r.output_tokens),
    ("scheduled_s", pa.float64(), lambda r: r.scheduled_s),
    ("sent_s", pa.float64(), latency.sent_s),
    ("first_token_s", pa.float64(), lambda r: r.first_token_s),
    ("end_s", pa.float64(), lambda r: r.end_s),
    ("ttft_from_send_s", pa.float64(), latency.ttft_from_send_s),
    ("queue_s", pa.float64(), lambda r: r.stats.queue_s),
    ("prefill_s", pa.float64(), lambda r: r.stats.prefill_s),
    ("decode_s", pa.float64(), lambda r: r.stats.decode_s),
    ("preempted_s", pa.float64(), lambda r: r.stats.preempted_s),
    ("num_preemptions", pa.int64(), lambda r: r.stats.num_preemptions),
    ("num_steps", pa.int64(), lambda r: r.stats.num_steps),
    ("max_stall_s", pa.float64(), latency.max_stall_s),
    ("max_stall_cause", pa.string(), lambda r: r.stats.max_stall_cause),
    ("token_times_s", pa.list_(pa.float64()), lambda r: r.token_times_s),
    ("token_counts", pa.list_(pa.int32()), lambda r: r.token_counts),
    ("label", pa.string(), lambda r: r.label),
    ("session", pa.string(), lambda r: r.session),
    ("max_tokens", pa.int64(), lambda r: r.max_tokens),
    ("ignore_eos", pa.bool_(), lambda r: r.ignore_eos),
    ("finish_reason", pa.string(), lambda r: r.finish_reason),
    ("lag_s", pa.float64(), latency.lag_s),
    ("first_time_prompt", pa.int64(), lambda r: r.stats.first_time_prompt),
    ("first_time_output", pa.int64(), lambda r: r.stats.first_time_output),
    ("prefix_hit_tokens", pa.int64(), lambda r: r.stats.prefix_hit_tokens),
    ("later_hit_tokens", pa.int64(), lambda r: r.stats.later_hit_tokens),
    ("num_prefill_steps", pa.int64(), lambda r: r.stats.num_prefill_steps),
    ("preempted_from_s", pa.list_(pa.float64()), lambda r: r.stats.preempted_from_s),
    ("preempted_until_s", pa.list_(pa.float64()), lambda r: r.stats.preempted_until_s),
    ("served_prompt_tokens", pa.int64(), lambda r: r.stats.served_prompt_tokens),
    ("counted_by", pa.string(), lambda r: r.stats.counted_by),
    ("swapped_tokens", pa.int64(), lambda r: r.stats.swapped_tokens),
    ("arrived", pa.bool_(), lambda r: r.arrived),
)
_OUTPUT_IDS: Final[_Column] = ("output_ids", pa.list_(pa.int32()), lambda r: r.output_ids)

_INT, _FLOAT = pa.int64(), pa.float64()
_STEP_COLUMNS: Final[Mapping[str, pa.DataType]] = {
    "step": _INT,
    "start_s": _FLOAT,
    "compute_s": _FLOAT,
    "schedule_s": _FLOAT,
    "pack_s": _FLOAT,
    "num_running": _INT,
    "num_waiting": _INT,
    "prefill_tokens": _INT,
    "decode_tokens": _INT,
    "prompt": _INT,
    "output": _INT,
    "recomputed": _INT,
    "padding": _INT,
    "rejected_draft": _INT,
    "past_stop": _INT,
    "blocks_used": _INT,
    "blocks_cached": _INT,
    "blocks_free": _INT,
    "preemptions": _INT,
    "end_s": _FLOAT,
    "copy_s": _FLOAT,
    "slots": _INT,
    "useful_rows": _INT,
    "tokens_held": _INT,
    "tokens_reserved": _INT,
    "update_s": _FLOAT,
    "positions": _INT,
    "lost_inside_blocks": _INT,
    "lost_to_reservation": _INT,
    "lost_to_fragmentation": _INT,
}


def write_requests(path: Path, cells: Sequence[CellRecord]) -> None:
    """A row a request and cell."""
    saved = any(r.output_ids is not None for cell in cells for r in cell.requests)
    own = (*_REQUEST_COLUMNS, _OUTPUT_IDS) if saved else _REQUEST_COLUMNS
    columns = _key_columns((cell, len(cell.requests)) for cell in cells)
    records = [request for cell in cells for request in cell.requests]
    classes = [name for cell in cells for name in request_classes(cell.requests)]
    columns["request_id"] = pa.array([r.request_id for r in records], pa.string())
    columns["class"] = pa.array(classes, pa.string())
    for name, kind, value in own:
        columns[name] = pa.array([value(record) for record in records], kind)
    metadata = {CELLS_KEY: json.dumps([cell_to_json(cell) for cell in cells], allow_nan=False)}
    _write(path, pa.table(columns).replace_schema_metadata(metadata))


def write_steps(path: Path, cells: Sequence[CellRecord]) -> None:
    """A row an engine step; none for engines that report no steps."""
    columns = _key_columns((cell, len(cell.steps)) for cell in cells)
    steps: list[StepRow] = [row for cell in cells for row in cell.steps]
    for name, kind in _STEP_COLUMNS.items():
        columns[name] = pa.array([getattr(row, name) for row in steps], kind)
    _write(path, pa.table(columns))


def _key_columns(cells: Iterable[tuple[CellRecord, int]]) -> dict[str, pa.Array]:
    keys = [
        (cell.key.engine, cell.key.load, cell.key.round)
        for cell, rows in cells
        for _ in range(rows)
    ]
    return {
        name: pa.array([key[position] for key in keys], kind)
        for position, (name, kind) in enumerate(_KEY)
    }


def _write(path: Path, table: pa.Table) -> None:
    """Whole or not at all."""
    unfinished = path.with_name(path.name + ".tmp")
    pq.write_table(table, unfinished, compression="zstd")
    unfinished.replace(path)
