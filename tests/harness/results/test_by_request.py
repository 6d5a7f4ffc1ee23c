"""Request by request: each meets itself; a round is one number, however many it has."""

from __future__ import annotations

import pytest

from harness.results.by_request import pair_requests
from harness.results.file import close_run
from harness.results.values import Comparison, RunFile
from harness.show.report import comparison_text

SETTINGS = {"engine_order": ["a", "b"]}
E2E = "e2e_s by request"


def play(player, engine: str, number: int, ends_s: dict[str, float], failed: str = "") -> None:
    requests = [player.request(name, out=2) for name in ends_s]
    events = []
    for name, end_s in ends_s.items():
        if name == failed:
            events += [player.tokens(0.1, {name: 1}), player.end(0.2, name, "failed", "x")]
        else:
            events += player.answer(name, [end_s / 2, end_s])
    player.record(requests, events, engine=engine, number=number)


def compared(run: RunFile, metric: str = E2E) -> Comparison:
    (found,) = (c for c in run.comparisons if c.metric == metric)
    return found


def test_a_round_counts_by_the_median_of_its_requests_own_ratios(player):
    """Pooled medians would say 1; request by request b takes twice as long for most."""
    play(player, "a", 1, {"r0": 1.0, "r1": 2.0, "r2": 8.0})
    play(player, "b", 1, {"r0": 2.0, "r1": 4.0, "r2": 1.0})
    run = close_run(player.folder, SETTINGS, {})
    assert compared(run, "e2e_s.p50").ratio == pytest.approx(1.0)
    assert compared(run).ratio == pytest.approx(2.0)
    assert compared(run).note == "one round; on 3 requests that were ok in both, 1 of them sooner"


def test_many_requests_in_few_rounds_make_no_interval(player):
    for number in range(1, 5):
        play(player, "a", number, {f"r{i}": 1.0 + i / 100 for i in range(200)})
        play(player, "b", number, {f"r{i}": 2.0 + i / 100 for i in range(200)})
    found = compared(close_run(player.folder, SETTINGS, {}))
    assert (found.rounds, found.low, found.answer) == (4, None, None)
    assert "on 800 requests" in found.note


def test_a_rounds_own_noise_moves_all_its_requests_and_still_counts_once(player):
    """Within a round all requests of b are slow or fast together: 5 numbers, not 100."""
    for number, factor in enumerate((0.8, 1.25, 0.9, 1.1, 1.0), start=1):
        ends_s = {f"r{i}": 1.0 + i for i in range(20)}
        play(player, "a", number, ends_s)
        play(player, "b", number, {name: factor * end_s for name, end_s in ends_s.items()})
    found = compared(close_run(player.folder, SETTINGS, {}))
    assert found.rounds == 5
    assert found.answer == "not separable"
    assert found.low < 0.85
    assert found.high > 1.15


def test_the_interval_is_that_of_the_rounds_medians(player):
    for number, factor in enumerate((1.9, 2.0, 2.1, 2.05, 1.95), start=1):
        play(player, "a", number, {"r0": 1.0, "r1": 5.0, "r2": 3.0})
        play(player, "b", number, {"r0": factor, "r1": 5.0 * factor, "r2": 9.0})
    run = close_run(player.folder, SETTINGS, {})
    found = compared(run)
    assert (found.answer, found.direction) == ("worse", "lower")
    assert 1.9 < found.low < found.ratio < found.high < 2.2
    assert "E2E, request by request: 2.00x (95% interval" in comparison_text(run)


def test_who_was_not_ok_in_both_and_who_has_no_such_time_is_left_out_and_said(player):
    play(player, "a", 1, {"r0": 1.0, "r1": 1.0, "r2": 1.0}, failed="r0")
    play(player, "b", 1, {"r0": 3.0, "r1": 3.0, "r2": 3.0}, failed="r1")
    run = close_run(player.folder, SETTINGS, {})
    for metric in ("ttft_s by request", "tpot_s by request", E2E):
        assert compared(run, metric).ratio == pytest.approx(3.0)
        assert compared(run, metric).note.endswith("0 of them sooner, 2 others left out")


def test_a_time_of_zero_has_no_ratio_and_is_left_out(player):
    cell = player.cell(
        [player.request("r0", out=1), player.request("r1", out=1)],
        [*player.answer("r0", [0.0]), *player.answer("r1", [1.0])],
    )
    paired = pair_requests([cell], [cell], lambda request: request.end_s)
    assert (paired.number, paired.left_out, paired.medians) == (1, 1, (1.0,))
    nothing = pair_requests([cell], [cell], lambda request: None)
    assert (nothing.number, nothing.medians) == (0, (None,))
