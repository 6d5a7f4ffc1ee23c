"""What step rows are not asked, because somebody could not know; and shares of what is known."""

from __future__ import annotations

from dataclasses import replace

import pytest

from engines.api import RequestStats, StepEvents
from harness.metrics import Goodput, summarise_cell
from harness.metrics.scheduler import ledger_faults, littles_law, prefix_hit_share

NO_SLO = Goodput()


def two_step_cell(player):
    """`a` (2 + 2): two prompt positions and one of output, in service for both steps."""
    stats = RequestStats(0.0, 1.0, 1.0, 0.0, 0, 2, None, 2, 1, 0)
    rows = [player.step(1, 0.0, 1.0, prompt=2), player.step(2, 1.0, 2.0, output=1)]
    events = [
        *(StepEvents(row.end_s, ("a",), ((1,),), (), row) for row in rows),
        player.end(2.0, "a", stats=stats),
    ]
    return player.cell([player.request("a", out=2)], events)


def test_steps_and_requests_may_not_differ_either_way(player):
    cell = two_step_cell(player)
    assert ledger_faults(cell) == ()
    for prompt in (1, 3):
        row = replace(cell.steps[0], prompt=prompt)
        (fault,) = ledger_faults(replace(cell, steps=(row, cell.steps[1])))
        assert fault == f"steps executed {prompt} first-time prompt positions, requests say 2"


def test_a_cut_recording_may_lack_what_requests_say_but_not_what_steps_say(player):
    cut = replace(two_step_cell(player), trailer=None)
    unclosed = replace(cut.requests[0], status="cancelled", stats=RequestStats())
    assert ledger_faults(replace(cut, requests=(unclosed,))) == ()
    assert len(ledger_faults(replace(cut, steps=cut.steps[:1]))) == 1


def test_littles_law_is_not_asked_where_somebodys_times_are_unknown(player):
    cell = two_step_cell(player)
    (a,) = cell.requests
    assert littles_law(cell) == pytest.approx(1.0)
    unknown = replace(a, request_id="b", stats=RequestStats())
    unserved = replace(a, request_id="c", token_times_s=(), token_counts=(), status="failed")
    assert littles_law(replace(cell, requests=(a, unknown))) is None
    assert littles_law(replace(cell, requests=(a, unserved))) is None
    assert littles_law(replace(cell, trailer=None)) is None
    assert littles_law(replace(cell, steps=())) is None


def test_hits_are_a_share_of_the_prompts_of_those_who_say_so(player):
    (a,) = two_step_cell(player).requests
    hit = replace(a, prompt_tokens=10, stats=RequestStats(prefix_hit_tokens=4))
    silent = replace(a, prompt_tokens=90, stats=RequestStats())
    assert prefix_hit_share([hit, silent]) == pytest.approx(0.4)
    assert prefix_hit_share([silent]) is None


def test_the_pools_use_is_what_is_reserved_of_it(player):
    rows = [
        player.step(1, 0.0, 1.0, tokens_held=8, tokens_reserved=32),
        player.step(2, 1.0, 4.0, tokens_held=8, tokens_reserved=16),
    ]
    cell = player.cell([player.request("a")], [StepEvents(r.end_s, step=r) for r in rows])
    pooled = replace(cell, info=player.info(kv_tokens=64))
    used = summarise_cell(pooled, NO_SLO).kv_pool_used
    assert used.mean == pytest.approx((0.5 * 1 + 0.25 * 3) / 4)
    assert used.peak == 0.5
    assert summarise_cell(cell, NO_SLO).kv_pool_used is None


def test_slots_are_used_by_rows_with_work_not_by_residents(player):
    row = player.step(1, 0.0, 1.0, num_running=4, useful_rows=1)
    cell = player.cell([player.request("a")], [StepEvents(1.0, step=row)])
    assert summarise_cell(cell, NO_SLO).slot_utilisation == 0.25
