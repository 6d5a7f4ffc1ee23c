"""What HTTP adds: served minus in process, round by round, in the report as a number."""

from __future__ import annotations

from dataclasses import replace

import pytest

from harness.results.file import close_run
from harness.results.transport import transport_costs
from harness.show.report import finding


def played(player, *, extra_s, rounds=3, serves="e", slots=None):
    """An engine `e` and `http`, which serves it and whose every token comes `extra_s` later."""
    info = player.info()
    behind = replace(info, settings={**info.settings, "serves": serves}, slots=slots)
    for number in range(1, rounds + 1):
        for engine, late_s in (("e", 0.0), ("http", extra_s * number)):
            player.record(
                [player.request("a"), player.request("b")],
                [
                    *player.answer("a", [1.0 + late_s, 2.0 + late_s]),
                    *player.answer("b", [1.5 + late_s, 2.5 + late_s]),
                ],
                engine=engine,
                number=number,
                info=behind if engine == "http" else info,
            )
    return close_run(player.folder, {"engine_order": ["e", "http"]}, {})


def test_the_median_over_rounds_of_what_was_added_is_told(player):
    run = played(player, extra_s=0.010)
    (cost,) = run.transport
    assert (cost.engine, cost.served, cost.rounds) == ("e", "http", 3)
    assert cost.ttft_p50_s == pytest.approx(0.020)
    assert cost.e2e_p50_s == pytest.approx(0.020)
    assert cost.tpot_p50_s == pytest.approx(0.0, abs=1e-9)
    (sentence,) = [text for text in finding(run) if "HTTP added" in text]
    assert "HTTP added 20.0 ms to the median TTFT of e" in sentence
    assert "median of 3 rounds" in sentence


def test_an_engine_that_no_server_serves_has_no_such_sentence(player):
    run = played(player, extra_s=0.010, serves="another[x=1]")
    assert run.transport == ()
    assert not any("HTTP added" in text for text in finding(run))


def test_a_spec_is_the_same_with_other_blanks(player):
    run = played(player, extra_s=0.010, serves=" e ")
    assert len(transport_costs(run)) == 1


def test_what_a_server_does_not_tell_is_no_difference(player):
    run = played(player, extra_s=0.010)
    assert {"KV tokens", "rows a step"}.isdisjoint(
        fact.split(" (")[0] for item in run.comparisons for fact in item.also_different
    )
