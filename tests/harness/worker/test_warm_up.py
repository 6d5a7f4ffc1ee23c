"""What a warm-up does is in no record of its cell, and neither are its plans."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from engines.api import EngineInfo, Request
from engines.loop.executors.hashing import HashingExecutor
from engines.loop.kv.paged import PagedCache
from engines.loop.loop import EngineLoop
from engines.loop.policies.chunked import ChunkedPolicy
from engines.loop.replay import replay
from harness.metrics import Goodput, summarise_cell
from harness.plans import PlanTap, read_plan_log
from harness.records import CellKey, read_cells
from harness.worker.cell import CellRun
from harness.worker.protocol import RunCell
from workloads.loads import all_at_once

SETTINGS = {
    "policy": "chunked",
    "max_num_seqs": 4,
    "max_num_batched_tokens": 64,
    "long_prefill_token_threshold": 0,
    "enable_chunked_prefill": True,
    "order": "fcfs",
    "fair_by": "class",
    "admission": "prompt",
    "watermark": 0.01,
    "victim": "auto",
    "preemption": "recompute",
    "allocator": "paged",
    "reserve": None,
    "prefix_caching": False,
    "block_size": 4,
    "num_blocks": 12,
}


def requests(names: str) -> tuple[Request, ...]:
    """Two of them together outgrow the pool of 48 positions."""
    return tuple(Request(name, tuple(range(8)), 30) for name in names)


def run(folder: Path, measured: str, warmup: str, *, save_plans: bool) -> None:
    tap = PlanTap()
    info = EngineInfo("loop", SETTINGS, 4096, 4)
    cache, executor = PagedCache(12, 4), HashingExecutor(12, 4)
    engine = EngineLoop(ChunkedPolicy(4, 64), cache, executor, info, tap)
    command = RunCell(
        key=CellKey("e", "l", 1),
        requests=requests(measured),
        load=all_at_once(),
        warmup=requests(warmup),
        folder=folder,
        save_outputs=False,
        save_plans=save_plans,
    )
    CellRun(
        engine,
        command,
        spec="e",
        info=info,
        tap=tap,
        parent_pid=1,
        stopped=lambda: False,
        report=lambda progress: None,
    ).run()


def preempted(folder: Path) -> tuple[int, int]:
    """In the requests' own words, and in the steps'."""
    (cell,) = read_cells(folder)
    preemptions = summarise_cell(cell, Goodput()).preemptions
    assert preemptions is not None
    return preemptions.total, sum(row.preemptions for row in cell.steps)


def test_preemptions_of_a_warm_up_are_not_counted(tmp_path: Path) -> None:  # N5
    run(tmp_path / "two", "ab", "", save_plans=False)
    alone = preempted(tmp_path / "two")
    assert alone[0] == alone[1] > 0
    run(tmp_path / "one", "a", "wxyz", save_plans=False)
    assert preempted(tmp_path / "one") == (0, 0)
    run(tmp_path / "both", "ab", "wxyz", save_plans=False)
    assert preempted(tmp_path / "both") == alone


def test_plans_of_a_warm_up_are_not_saved_and_the_rest_is_planned_again(tmp_path: Path) -> None:
    run(tmp_path, "ab", "wxyz", save_plans=True)
    (cell,) = read_plan_log(tmp_path)
    arrived = [request for turn in cell.turns() for request in turn.look.arrived]
    assert arrived == [replace(request, scheduled_s=0.0) for request in requests("ab")]
    again = replay(cell.info, cell.turns())
    (record,) = read_cells(tmp_path)
    assert again.difference is None
    assert again.steps == len(record.steps) > 30


def test_plans_are_saved_only_when_they_are_wanted(tmp_path: Path) -> None:
    run(tmp_path, "ab", "w", save_plans=False)
    assert not (tmp_path / "plans.jsonl").exists()
