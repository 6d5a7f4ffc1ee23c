"""Latencies of one request, with numbers worked out by hand."""

from __future__ import annotations

import json

import pytest

from engines.api import RequestStats
from harness.metrics import Goodput, summarise_cell
from harness.metrics.latency import itl_samples_s, lag_s, max_stall_s, tpot_s, ttft_s
from harness.metrics.quantiles import quantile, summarise, with_failures

NO_SLO = Goodput()


def test_chunks_are_not_tokens(player):  # C1
    events = [*(player.tokens(t, {"a": 3}) for t in (0.1, 0.2, 0.3)), player.end(0.3, "a")]
    cell = player.cell([player.request("a", out=9)], events)
    (request,) = cell.requests
    assert request.output_tokens == 9
    assert tpot_s(request) == pytest.approx(0.025)
    assert itl_samples_s(request) == pytest.approx([0.1 / 3] * 6)
    assert max_stall_s(request) == pytest.approx(0.1)
    assert ttft_s(request) == pytest.approx(0.1)


def test_tpot_is_missing_not_zero_below_two_tokens(player):  # E1
    requests = [player.request("none", out=0), player.request("one", out=1), player.request("ten")]
    events = [
        player.end(0.1, "none"),
        *player.answer("one", [0.2]),
        *player.answer("ten", [0.1 * i for i in range(1, 11)]),
    ]
    result = summarise_cell(player.cell(requests, events), NO_SLO)
    assert (result.tpot_s.n, result.tpot_s.undefined) == (1, 1)
    assert result.tpot_s.p50 == pytest.approx(0.1)
    assert (result.counts.ok, result.counts.failed) == (2, 1)


def test_tokens_that_all_came_at_once_have_no_tpot(player):
    cell = player.cell([player.request("a")], [player.tokens(0.3, {"a": 3}), player.end(0.3, "a")])
    assert tpot_s(cell.requests[0]) is None
    assert max_stall_s(cell.requests[0]) is None


def test_nothing_ok_gives_zero_rates_and_no_latencies(player):  # E2
    requests = [player.request(name) for name in "abcde"]
    events = [player.end(0.1, name, "failed", "connection refused") for name in "abcde"]
    result = summarise_cell(player.cell(requests, events), NO_SLO)
    assert (result.counts.ok, result.counts.offered) == (0, 5)
    assert result.output_throughput_tok_s == 0
    assert result.request_throughput_req_s == 0
    assert result.makespan_s is None
    assert (result.ttft_s.n, result.ttft_s.p95, result.e2e_s.mean) == (0, None, None)
    assert result.reasons == {"failed": {"connection refused": 5}}


def test_one_request_has_equal_quantiles_and_no_spread(player):  # E5
    result = summarise_cell(
        player.cell([player.request("a", out=1)], player.answer("a", [0.575])), NO_SLO
    )
    e2e = result.e2e_s
    assert e2e.p50 == e2e.p95 == e2e.p99 == e2e.max == 0.575
    assert e2e.std is None
    assert e2e.thin == ("p95", "p99")


def test_undefined_values_are_left_out_and_counted():  # F3
    sample = summarise([1.0, 2.0, float("nan"), None])
    assert sample.p95 == pytest.approx(1.95)
    assert (sample.n, sample.undefined) == (2, 2)
    assert summarise([]).p95 is None


def test_spread_is_that_of_a_sample():
    assert summarise([1.0, 2.0, 3.0]).std == pytest.approx(1.0)


def test_p99_never_passes_the_maximum():  # F4
    values = [0.470 + i * 0.530 / 36 for i in range(37)] + [5.246, 6.732]
    sample = summarise(values)
    assert sample.p99 is not None
    assert sample.max == 6.732
    assert sample.p99 == pytest.approx(5.246 + (6.732 - 5.246) * 0.62)


def test_tpot_is_a_request_and_itl_a_gap(player):  # F7
    requests = [player.request("a", out=2), player.request("b", out=100)]
    events = [
        *player.answer("a", [1.0, 1.1]),
        *player.answer("b", [1 + i / 100 for i in range(100)]),
    ]
    result = summarise_cell(player.cell(requests, events), NO_SLO)
    assert result.tpot_s.mean == pytest.approx(0.055)
    assert result.itl_s.mean == pytest.approx(0.0109)
    assert result.itl_s.n == 100


def test_tokens_at_one_instant_have_no_time_per_token(player):
    cell = player.cell([player.request("a", out=2)], player.answer("a", [0.5, 0.5]))
    assert tpot_s(cell.requests[0]) is None


def test_preemption_shows_in_stall_and_e2e_not_in_ttft(player):  # N4
    stats = RequestStats(0.0, 0.2, 1.3, 1.5, 1, 9, "preemption", 2, 3, 0)
    events = player.answer("b", [0.2, 0.5, 2.0, 3.0], stats)
    result = summarise_cell(player.cell([player.request("b", out=4)], events), NO_SLO)
    assert result.ttft_s.max == pytest.approx(0.2)
    assert result.e2e_s.max == pytest.approx(3.0)
    assert result.itl_s.max == pytest.approx(1.5)
    assert result.total_throughput_tok_s == pytest.approx((2 + 4) / 3.0)


def test_ttft_counts_from_the_schedule_and_lag_stands_apart(player):
    pushed = RequestStats(sent_s=1.25)
    requests = [player.request("pushed", at=1.0), player.request("pulled", at=1.0)]
    events = [*player.answer("pushed", [2.0], pushed), *player.answer("pulled", [2.0])]
    cell = player.cell(requests, events)
    assert ttft_s(cell.requests[0]) == 1.0
    assert [lag_s(request) for request in cell.requests] == [0.25, None]
    result = summarise_cell(cell, NO_SLO)
    assert result.lag_s is not None
    assert result.lag_s.n == 1


def test_an_engine_that_pulls_has_no_lag_and_may_not_know_its_queue(player):
    result = summarise_cell(player.cell([player.request("a")], player.answer("a", [1.0])), NO_SLO)
    assert result.lag_s is None
    assert result.queue_s is None
    assert result.preemptions is None


def test_failures_count_as_infinite_the_second_time(player):
    requests = [player.request(f"r{i}", out=1) for i in range(10)]
    events = [event for i in range(8) for event in player.answer(f"r{i}", [1.0 + i])]
    result = summarise_cell(player.cell(requests, events), NO_SLO)
    assert result.e2e_s.p95 == pytest.approx(7.65)
    assert result.with_failures is not None
    slow = result.with_failures["e2e_s"]
    assert (slow.n, slow.p50, slow.p95) == (10, pytest.approx(5.5), "inf")
    json.dumps(slow.p95, allow_nan=False)


def test_a_quantile_between_a_value_and_infinity_is_infinite():
    assert quantile([1.0, float("inf")], 0.5) == float("inf")
    assert with_failures([1.0, 2.0, 3.0], 1).p50 == 2.5
