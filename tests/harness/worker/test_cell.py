"""What a cell's run does around an engine: caches are emptied, sessions keep their order."""

from __future__ import annotations

from pathlib import Path

import pytest

from engines.api import EngineInfo, Request
from engines.loop.executors.hashing import HashingExecutor
from engines.loop.kv.paged import PagedCache
from engines.loop.loop import EngineLoop
from engines.loop.policies.chunked import ChunkedPolicy
from harness.metrics.scheduler import prefix_hit_share
from harness.plans import PlanTap
from harness.records import CellKey, read_cells
from harness.worker.cell import CellRun
from harness.worker.protocol import RunCell
from workloads.loads import all_at_once, at_load
from workloads.workload import ModelLimits, Workload, draw, open_workload, warmup_requests

LIMITS = ModelLimits(4096, 4096, (0, 1, 2, 3))


def loop() -> EngineLoop:
    cache = PagedCache(2000, 16, prefix_caching=True)
    executor = HashingExecutor(2000, 16)
    return EngineLoop(ChunkedPolicy(16, 256), cache, executor, EngineInfo("loop", {}, 4096, 16))


def run_cell(engine: EngineLoop, folder: Path, number: int, workload: Workload, warmup=()) -> None:
    load = all_at_once()
    command = RunCell(
        key=CellKey("e", "l", number),
        requests=at_load(workload, load),
        load=load,
        warmup=tuple(warmup),
        folder=folder,
        save_outputs=True,
    )
    CellRun(
        engine,
        command,
        spec="e",
        info=engine.describe(),
        tap=PlanTap(),
        parent_pid=1,
        stopped=lambda: False,
        report=lambda progress: None,
    ).run()


@pytest.mark.parametrize("warmups", [0, 2])
def test_the_same_prompts_again_are_as_new_to_a_prefix_cache(tmp_path: Path, warmups: int):  # L1
    workload = draw(open_workload("uniform"), seed=0, limits=LIMITS, num_prompts=4)
    engine = loop()
    for number in (1, 2):
        run_cell(engine, tmp_path, number, workload, warmup_requests(workload, warmups, LIMITS))
    assert [prefix_hit_share(cell.requests) for cell in read_cells(tmp_path)] == [0.0, 0.0]


def test_a_warm_up_of_the_very_prompts_warms_nothing(tmp_path: Path):  # L1
    workload = draw(open_workload("uniform"), seed=0, limits=LIMITS, num_prompts=4)
    run_cell(loop(), tmp_path, 1, workload, warmup=at_load(workload, all_at_once()))
    (cell,) = read_cells(tmp_path)
    assert prefix_hit_share(cell.requests) == 0.0


def test_prompts_that_share_are_found_up_to_what_they_have_in_common(tmp_path: Path):
    shares = {}
    for name in ("shared-prefix", "multi-turn"):
        folder = tmp_path / name
        workload = draw(open_workload(name), seed=0, limits=LIMITS)
        run_cell(loop(), folder, 1, workload)
        (cell,) = read_cells(folder)
        share = prefix_hit_share(cell.requests)
        assert share is not None
        assert 0.4 < share <= workload.shared_prompt_share
        shares[name] = share
        assert {request.status for request in cell.requests} == {"ok"}
    assert shares["shared-prefix"] > shares["multi-turn"]


def test_a_turn_of_a_session_arrives_when_the_one_before_it_has_ended(tmp_path: Path):
    workload = draw(open_workload("multi-turn"), seed=0, limits=LIMITS, num_prompts=20)
    run_cell(loop(), tmp_path, 1, workload)
    (cell,) = read_cells(tmp_path)
    ended: dict[str | None, float] = {}
    for request in cell.requests:
        assert request.session is not None
        assert request.scheduled_s == ended.get(request.session, 0.0)
        assert request.end_s is not None
        ended[request.session] = request.end_s
    assert len(ended) > 5
    assert max(ended.values()) > 0
    assert cell.closed_loop


def test_requests_of_the_fixture_differ() -> None:
    """A workload whose prompts were equal would make the tests above say nothing."""
    drawn: list[Request] = list(draw(open_workload("uniform"), seed=0, limits=LIMITS).requests)
    assert len({request.prompt_token_ids for request in drawn}) == len(drawn)
