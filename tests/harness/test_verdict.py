"""Each rule of the verdict speaks when it must and keeps silent when it should."""

from __future__ import annotations

from dataclasses import replace

import pytest

from engines.api import RequestStats, StepEvents
from harness.metrics import Goodput, summarise_cell
from harness.records import CellRecord, CellTrailer, Defects
from harness.verdict import Evidence, judge_cell

GOOD = CellTrailer(10.0, warmup_requests=2, others_cpu_share=0.05, clock_drift_s=0.01)


def sound_cell(player, lag_s: float | None = None) -> CellRecord:
    sent = None if lag_s is None else lag_s
    stats = RequestStats(0.0, 4.0, 2.0, 0.0, 0, 2, None, 2, 2, 0, sent)
    rows = [
        player.step(1, 0.0, 4.0, prompt=2),
        player.step(2, 4.0, 5.0, output=1),
        player.step(3, 5.0, 6.0, output=1),
    ]
    events = [
        *(StepEvents(row.end_s, ("a",), ((1,),), (), row) for row in rows),
        player.end(6.0, "a", stats=stats),
    ]
    return player.cell([player.request("a", prompt=2, out=3)], events, trailer=GOOD)


def reasons(
    cell: CellRecord, measured_s: float = 6.0, simulated: bool = False, shared: float = 0.0
) -> str:
    result = summarise_cell(cell, Goodput())
    verdict = judge_cell(Evidence(cell, result, measured_s, simulated, shared_prompt_share=shared))
    assert (verdict.status == "VALID") == (not verdict.reasons)
    return " | ".join(verdict.reasons)


def test_a_sound_cell_is_valid(player):
    assert reasons(sound_cell(player)) == ""


def test_measured_time_is_that_of_all_rounds_and_not_asked_of_a_simulation(player):
    cell = sound_cell(player)
    assert "only 4.90 s" in reasons(cell, measured_s=4.9)
    assert reasons(cell, measured_s=4.9, simulated=True) == ""


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"warmup_requests": 0}, "no warm-up"),
        ({"others_cpu_share": 0.11}, "others used or stole 11% of the CPU"),
        ({"clock_drift_s": -0.2}, "parted by 200 ms"),
        ({"interrupted": True}, "interrupted"),
        ({"error": "out of memory"}, "broke down: out of memory"),
    ],
)
def test_each_fact_of_the_trailer_has_its_reason(player, change, words):
    cell = sound_cell(player)
    assert words in reasons(replace(cell, trailer=replace(GOOD, **change)))


def test_what_was_not_measured_is_not_judged(player):
    cell = sound_cell(player)
    unknown = replace(GOOD, others_cpu_share=None, clock_drift_s=None)
    assert reasons(replace(cell, trailer=unknown)) == ""


@pytest.mark.parametrize(("lag_s", "late"), [(0.0049, False), (0.0051, True)])
def test_client_lag_has_an_absolute_limit(player, lag_s, late):
    assert ("sent late" in reasons(sound_cell(player, lag_s))) is late


def test_client_lag_has_a_limit_relative_to_the_median_ttft(player):
    stats = RequestStats(sent_s=0.003)
    cell = player.cell([player.request("a", out=1)], player.answer("a", [0.040], stats), GOOD)
    assert "the limit is 2.0 ms" in reasons(cell)


@pytest.mark.parametrize(("bad", "told"), [(1, False), (2, True)])
def test_more_than_one_in_a_hundred_not_ok_is_suspect(player, bad, told):
    requests = [player.request(f"r{i}", out=1) for i in range(100)]
    events = [e for i in range(100 - bad) for e in player.answer(f"r{i}", [1.0])]
    events += [player.end(1.0, f"r{i}", "failed", "x") for i in range(100 - bad, 100)]
    assert ("were not ok" in reasons(player.cell(requests, events, GOOD))) is told


def test_output_lengths_must_be_those_asked_for(player):
    cell = sound_cell(player)
    (request,) = cell.requests
    assert "number of output tokens" in reasons(
        replace(cell, requests=(replace(request, max_tokens=4),))
    )
    may_stop = replace(request, max_tokens=4, ignore_eos=False)
    assert reasons(replace(cell, requests=(may_stop,))) == ""


@pytest.mark.parametrize(
    ("hits", "shared", "words"),
    [
        (0, 0.0, ""),
        (1, 0.0, ""),
        (2, 0.0, "2.0% of prompt tokens came from a prefix cache that was meant to be cold"),
        (50, 0.5, ""),
        (51, 0.5, ""),
        (
            52,
            0.5,
            "52.0% of prompt tokens came from a prefix cache, but the prompts have only 50.0%",
        ),
        (99, 1.0, ""),
    ],
)
def test_a_prefix_cache_may_find_what_the_prompts_have_in_common(player, hits, shared, words):
    """Of 100 prompt tokens; one in a hundred beyond it is let pass, as METRICS.md has it."""
    stats = RequestStats(0.0, 6.0, 0.0, 0.0, 0, 1, None, 100 - hits, 0, hits)
    row = player.step(1, 0.0, 6.0, prompt=100 - hits)
    events = [
        StepEvents(6.0, ("a",), ((1,),), (), row),
        player.end(6.0, "a", stats=stats),
    ]
    cell = player.cell([player.request("a", prompt=100, out=1)], events, trailer=GOOD)
    told = reasons(cell, shared=shared)
    assert words in told
    assert bool(told) is bool(words)


def test_ledger_littles_law_and_defects_are_asked(player):
    cell = sound_cell(player)
    lost = replace(cell.steps[2], output=0)
    assert "ledger does not add up" in reasons(replace(cell, steps=(*cell.steps[:2], lost)))
    double = tuple(replace(row, num_running=2) for row in cell.steps)
    assert "Little's law is off by 100.0%" in reasons(replace(cell, steps=double))
    assert "2 with tokens after a request's end" in reasons(
        replace(cell, defects=Defects(after_finish=2))
    )


def test_a_cut_recording_is_suspect(player):
    assert "cut short" in reasons(replace(sound_cell(player), trailer=None))
