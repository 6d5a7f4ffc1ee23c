"""What step rows add up to, with numbers worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from engines.api import ModelInfo, Request, RequestStats, StepEvents
from harness.metrics import Goodput, summarise_cell
from harness.metrics.scheduler import ledger_faults, littles_law, scheduling

NO_SLO = Goodput()


def worked_cell(player):
    """`a` (2 + 2) ends ok in three positions; `b` (3 + ...) executes four and fails."""
    requests = [player.request("a", prompt=2, out=2), player.request("b", prompt=3, out=5)]
    rows = [
        player.step(1, 0.0, 1.0, prompt=5, padding=3, num_running=2, useful_rows=2),
        player.step(2, 1.0, 2.0, output=2, recomputed=4, num_running=2, useful_rows=2, past_stop=1),
    ]
    a = RequestStats(0.0, 1.0, 1.0, 0.0, 0, 2, None, 2, 1, 0)
    b = RequestStats(0.0, 1.0, 1.0, 0.0, 1, 2, None, 3, 1, 0)
    events = [
        StepEvents(1.0, ("a", "b"), ((1,), (1,)), (), rows[0]),
        StepEvents(2.0, ("a", "b"), ((1,), (1,)), (), rows[1]),
        player.end(2.0, "a", stats=a),
        player.end(2.0, "b", "failed", "broke", b),
    ]
    return player.cell(requests, events)


def test_the_ledger_adds_up_and_moves_failed_work_to_discarded(player):
    ledger = summarise_cell(worked_cell(player), NO_SLO).ledger
    assert ledger is not None
    assert (ledger.useful_prompt, ledger.useful_output) == (2, 1)
    assert (ledger.recomputed, ledger.padding, ledger.rejected_draft) == (4, 3, 0)
    assert ledger.discarded == 3 + 1 + 1
    assert ledger.executed == 5 + 3 + 2 + 4 + 1
    parts = replace(ledger, executed=0)
    assert sum(getattr(parts, name) for name in parts.__slots__) == ledger.executed


def test_a_ledger_that_does_not_add_up_is_told(player):
    cell = worked_cell(player)
    assert ledger_faults(cell) == ()
    short = replace(cell, steps=cell.steps[:1])
    assert "output positions" in ledger_faults(short)[0]
    stats = replace(cell.requests[0].stats, prefix_hit_tokens=1)
    wrong = replace(cell.requests[0], stats=stats)
    assert "1 ok requests" in ledger_faults(replace(cell, requests=(wrong, cell.requests[1])))[0]


def test_preemptions_tell_an_even_load_from_one_thrashed_request(player):  # N5
    requests = [player.request(f"r{i}", out=1) for i in range(10)]
    events = []
    for i in range(10):
        stats = RequestStats(num_preemptions=3 if i == 4 else 0)
        events += player.answer(f"r{i}", [1.0], stats)
    preemptions = summarise_cell(player.cell(requests, events), NO_SLO).preemptions
    assert preemptions is not None
    assert (preemptions.total, preemptions.requests, preemptions.max_per_request) == (3, 1, 3)


def test_a_request_that_a_real_loop_preempts_three_times_is_told_apart(
    simulate,
):  # N5
    """The low rank has the only place three times, and loses it to each newcomer that finds it."""
    low = Request("low", (1, 2, 3), 60, priority=5)
    high = [Request(f"h{i}", (4, 5), 4, scheduled_s=0.1 + 0.3 * i, priority=1) for i in range(3)]
    behind = [Request(f"q{i}", (6,), 3, scheduled_s=0.71, priority=1) for i in range(6)]
    spec = "continuous[order=priority,max_num_seqs=1,num_blocks=50]"
    cell = simulate(spec, [low, *high, *behind])
    preemptions = summarise_cell(cell, NO_SLO).preemptions
    assert preemptions is not None
    assert (preemptions.total, preemptions.requests, preemptions.max_per_request) == (3, 1, 3)
    assert [r.stats.num_preemptions for r in cell.requests] == [3] + [0] * 9


def test_slots_and_kv_are_weighted_as_defined(player):
    rows = [
        player.step(1, 0.0, 1.0, useful_rows=4, tokens_held=8, tokens_reserved=16),
        player.step(2, 1.0, 4.0, useful_rows=1, tokens_held=16, tokens_reserved=16),
    ]
    events = [StepEvents(row.end_s, step=row) for row in rows]
    result = summarise_cell(player.cell([player.request("a")], events), NO_SLO)
    assert result.slot_utilisation == pytest.approx(5 / 8)
    assert result.kv_utilisation is not None
    assert result.kv_utilisation.mean == pytest.approx((0.5 * 1 + 1.0 * 3) / 4)
    assert result.kv_utilisation.peak == 1.0
    assert result.steps == 2


def test_bytes_that_were_swapped_are_positions_times_what_each_one_holds(player):
    requests = [player.request(name, out=1, label=label) for name, label in ("ax", "bx", "cy")]
    events = []
    for name, tokens in (("a", 30), ("b", 12), ("c", 0)):
        stats = RequestStats(num_preemptions=int(tokens > 0), swapped_tokens=tokens)
        events += player.answer(name, [1.0], stats)
    model = ModelInfo("m", 99, 99, (), (), 0, kv_bytes_per_token=100, dtype="x", device="cpu")
    cell = player.cell(requests, events)
    known = replace(cell, info=replace(cell.info, model=model))
    result = summarise_cell(known, NO_SLO)
    assert result.preemptions.swapped_bytes == 4200
    assert result.classes["y"].preemptions.swapped_bytes == 0
    assert summarise_cell(cell, NO_SLO).preemptions.swapped_bytes is None
    silent = tuple(replace(r, stats=replace(r.stats, swapped_tokens=None)) for r in cell.requests)
    unknown = replace(known, requests=silent)
    assert summarise_cell(unknown, NO_SLO).preemptions.swapped_bytes is None


def test_losses_are_shares_of_the_pool_by_cause_weighted_by_time(player):
    rows = [
        player.step(1, 0.0, 1.0, lost_inside_blocks=8, lost_to_reservation=40, num_running=4),
        player.step(2, 1.0, 4.0, lost_inside_blocks=4, lost_to_reservation=0, num_running=2),
    ]
    cell = player.cell([player.request("a")], [StepEvents(r.end_s, step=r) for r in rows])
    pooled = summarise_cell(replace(cell, info=player.info(kv_tokens=80)), NO_SLO)
    assert pooled.kv_loss.inside_blocks == pytest.approx((0.1 * 1 + 0.05 * 3) / 4)
    assert pooled.kv_loss.reservation == pytest.approx(0.5 / 4)
    assert pooled.kv_loss.fragmentation is None, "the engine did not say"
    assert pooled.residents.mean == pytest.approx((4 * 1 + 2 * 3) / 4)
    assert pooled.residents.peak == 4
    assert summarise_cell(cell, NO_SLO).kv_loss is None, "of what pool?"


def test_an_engine_that_says_nothing_of_losses_has_none_known(player):
    cell = player.cell([player.request("a")], [StepEvents(1.0, step=player.step(1, 0.0, 1.0))])
    result = summarise_cell(replace(cell, info=player.info(kv_tokens=80)), NO_SLO)
    assert result.kv_loss is None


def test_an_engine_without_steps_leaves_them_unknown_not_zero(player):
    result = summarise_cell(player.cell([player.request("a")], player.answer("a", [1.0])), NO_SLO)
    assert result.steps is None
    assert result.ledger is None
    assert result.slot_utilisation is None
    assert result.kv_utilisation is None


def test_littles_law_holds_for_an_honest_count_and_not_for_a_wrong_one(player):
    cell = worked_cell(player)
    assert littles_law(cell) == pytest.approx(1.0)
    wrong = tuple(replace(row, num_running=3) for row in cell.steps)
    assert littles_law(replace(cell, steps=wrong)) == pytest.approx(1.5)


def test_littles_law_takes_preempted_and_idle_time_out(player):
    rows = [
        player.step(1, 0.0, 1.0),
        player.step(2, 1.0, 2.0, num_running=0),  # preempted
        player.step(3, 2.0, 3.0),
        player.step(4, 9.0, 10.0),  # after an idle time another
    ]
    first = RequestStats(0.0, 1.0, 1.0, 1.0, 1, 2)
    second = RequestStats(0.5, 1.0, 0.0, 0.0, 0, 1)
    events = [
        *(StepEvents(row.end_s, step=row) for row in rows),
        *player.answer("a", [1.0, 3.0], first),
        *player.answer("b", [10.0], second),
    ]
    cell = player.cell([player.request("a"), player.request("b", at=8.5)], events)
    assert littles_law(cell) == pytest.approx(1.0)


def test_scheduling_overhead_is_schedule_and_pack_over_the_step(player):
    row = replace(player.step(1, 0.0, 2.0), schedule_s=0.1, pack_s=0.3, compute_s=1.5)
    result = summarise_cell(player.cell([player.request("a")], [StepEvents(2.0, step=row)]), NO_SLO)
    assert result.scheduling is not None
    assert result.scheduling.overhead == pytest.approx(0.2)


def test_a_full_step_is_one_that_fills_the_token_budget(player):
    """Two of 8 positions, taking 2 and 4 s; one of 5; where no budget is, no step is full."""
    steps = [
        player.step(0, 0.0, 2.0, output=8),
        player.step(1, 2.0, 3.0, output=5),
        player.step(2, 3.0, 7.0, prompt=6, padding=2),
    ]
    assert scheduling(steps, 8).full_step_s == 3.0
    assert scheduling(steps, 9).full_step_s is None
    assert scheduling(steps).full_step_s is None
