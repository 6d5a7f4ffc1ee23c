"""A long prompt beside running answers: what chunks bound, and what whole prompts freeze."""

from __future__ import annotations

import pytest

from engines.api import Request
from engines.loop.executors.cost_model import StepCost
from harness.metrics import Goodput, summarise_cell
from harness.results.file import close_run
from harness.show.report.stalls import stall_lines
from workloads.workload import ModelLimits, at_load, draw, open_workload

COST = StepCost(per_step_s=0.02, per_token_s=0.001)
ROOM = "max_num_seqs=8,num_blocks=1000"


def probe():
    """Seven steady answers, and two documents of 4,000 tokens that come between."""
    chats = [Request(f"c{i}", tuple(range(20)), 80, request_class="chat") for i in range(7)]
    documents = [
        Request(f"d{i}", tuple(range(4000)), 4, 0.5 + i, request_class="document") for i in range(2)
    ]
    return [*chats, *documents]


@pytest.fixture
def probed(simulate):
    """Longest stall of the steady answers, and the whole cell, of an engine."""

    def run(spec):
        record = simulate(f"e={spec}", probe(), cost=COST)
        cell = summarise_cell(record, Goodput())
        return cell.classes["chat"].max_stall_s.max, cell

    return run


def test_chunks_keep_the_longest_stall_within_two_full_steps(probed):
    stall_s, cell = probed(f"continuous[max_num_batched_tokens=256,{ROOM}]")
    assert cell.scheduling.full_step_s == pytest.approx(0.276)
    assert stall_s <= 2 * cell.scheduling.full_step_s


def test_whole_prompts_freeze_answers_for_all_their_length(probed):
    stall_s, cell = probed(f"loop[policy=prefill-first,{ROOM}]")
    assert stall_s > 4.0
    assert cell.scheduling.full_step_s is None


def play_preset(simulate, spec):
    """Of the preset as it is drawn and played: longest stall of the chats, and the whole cell."""
    workload = draw(open_workload("stall-probe"), seed=0, limits=ModelLimits(4096, 4096))
    (load,) = workload.default_loads
    cell = simulate(spec, at_load(workload, load), cost=COST, load=load)
    assert all(request.status == "ok" for request in cell.requests)
    summary = summarise_cell(cell, Goodput())
    return summary.classes["chat"].max_stall_s.max, summary


@pytest.mark.parametrize("budget", ["", "max_num_batched_tokens=128,"])
def test_the_preset_bounds_stalls_of_chunks_by_two_full_steps(simulate, budget):
    """Also with the budget that the engine takes of itself."""
    stall_s, cell = play_preset(simulate, f"e=continuous[{budget}num_blocks=3000]")
    assert cell.scheduling.full_step_s is not None
    assert stall_s <= 2 * cell.scheduling.full_step_s


def test_the_preset_shows_what_whole_prompts_do(simulate):
    """At the same price of a token: far beyond two of the other's steps."""
    chunked_s, cell = play_preset(simulate, "chunked=continuous[num_blocks=3000]")
    whole_s, _ = play_preset(simulate, "first=loop[policy=prefill-first,num_blocks=3000]")
    assert whole_s > 4.0
    assert whole_s > 5 * chunked_s
    assert whole_s > 5 * cell.scheduling.full_step_s


def test_the_report_tells_each_stall_beside_a_full_step(simulate):
    simulate(f"chunked=continuous[max_num_batched_tokens=256,{ROOM}]", probe(), cost=COST)
    simulate(f"first=loop[policy=prefill-first,{ROOM}]", probe(), cost=COST)
    simulate(f"orca=loop[policy=orca,{ROOM}]", probe(), cost=COST)
    run = close_run(simulate.folder, {"engine_order": ["chunked", "first", "orca"]}, {})
    assert stall_lines(run, "load") == [
        "longest stall of chunked: 276 ms, 1.00 times its median full step (276 ms).",
        "longest stall of first: 4048 ms; none of its steps filled its budget of 4096 tokens.",
        "longest stall of orca: 4027 ms; its steps have no token budget.",
    ]


def test_nothing_is_said_where_no_step_was_full(simulate):
    simulate(f"orca=loop[policy=orca,{ROOM}]", probe(), cost=COST)
    assert stall_lines(close_run(simulate.folder, {}, {}), "load") == []
