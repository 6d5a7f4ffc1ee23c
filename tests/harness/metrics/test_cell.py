"""Who enters which sample of a cell, and what a failure leaves there."""

from __future__ import annotations

import json

import pytest

from engines.api import RequestStats
from harness.metrics import Goodput, summarise_cell
from harness.results.file import close_run

NO_SLO = Goodput()
SAMPLES = ("ttft_s", "ttft_from_send_s", "tpot_s", "itl_s", "e2e_s", "queue_s", "max_stall_s")


@pytest.mark.parametrize("status", ["failed", "timeout", "cancelled"])
def test_only_requests_that_ended_ok_enter_a_sample(player, status):
    requests = [player.request("good", out=3), player.request("bad", prompt=50, out=3)]
    events = [
        *player.answer("good", [1.0, 2.0, 3.0], RequestStats(queue_s=0.5, sent_s=0.25)),
        player.tokens(5.0, {"bad": 1}),
        player.tokens(9.0, {"bad": 1}),
        player.end(9.0, "bad", status, "x", RequestStats(queue_s=4.0, sent_s=3.0)),
    ]
    result = summarise_cell(player.cell(requests, events), NO_SLO)
    for name in (*SAMPLES, "lag_s", "prompt_tokens", "output_tokens"):
        sample = getattr(result, name)
        assert sample.n == (2 if name == "itl_s" else 1), name
        assert sample.undefined == 0, name
    assert (result.ttft_s.max, result.ttft_from_send_s.max) == (1.0, 0.75)
    assert (result.e2e_s.max, result.max_stall_s.max, result.queue_s.max) == (3.0, 1.0, 0.5)
    assert (result.lag_s.max, result.prompt_tokens.max) == (0.25, 2)
    assert result.makespan_s == 9.0
    assert result.total_throughput_tok_s == pytest.approx((2 + 3) / 9.0)


def test_preemptions_of_requests_that_failed_later_count(player):
    requests = [player.request("good", out=1), player.request("bad", out=1)]
    events = [
        *player.answer("good", [1.0], RequestStats(num_preemptions=1)),
        player.end(2.0, "bad", "failed", "x", RequestStats(num_preemptions=4)),
    ]
    preemptions = summarise_cell(player.cell(requests, events), NO_SLO).preemptions
    assert (preemptions.total, preemptions.requests, preemptions.max_per_request) == (5, 2, 4)


@pytest.mark.parametrize(("bad", "shown"), [(1, False), (2, True)])
def test_failures_are_shown_as_infinite_above_one_in_a_hundred(player, bad, shown):
    requests = [player.request(f"r{i}", out=2) for i in range(100)]
    events = [e for i in range(100 - bad) for e in player.answer(f"r{i}", [1.0, 2.0])]
    events += [player.end(2.0, f"r{i}", "failed", "x") for i in range(100 - bad, 100)]
    slow = summarise_cell(player.cell(requests, events), NO_SLO).with_failures
    assert (slow is not None) is shown
    if shown:
        assert set(slow) == {"ttft_s", "tpot_s", "e2e_s", "max_stall_s"}
        assert {(q.n, q.p50, q.p99) for q in slow.values()} >= {(100, 1.0, "inf")}


def test_rates_of_a_class_are_over_the_whole_cells_time(player):
    requests = [player.request("a", out=2, label="x"), player.request("b", out=4, label="y")]
    events = [*player.answer("a", [0.5, 1.0]), *player.answer("b", [1.0, 2.0, 3.0, 4.0])]
    classes = summarise_cell(player.cell(requests, events), NO_SLO).classes
    assert classes["x"].output_throughput_tok_s == pytest.approx(2 / 4.0)
    assert classes["y"].output_throughput_tok_s == pytest.approx(4 / 4.0)


def test_requests_without_a_gap_are_counted_beside_the_itl_sample(player):
    requests = [player.request("one", out=1), player.request("burst"), player.request("two")]
    events = [
        *player.answer("one", [1.0]),
        player.tokens(1.0, {"burst": 3}),
        player.end(1.0, "burst"),
        *player.answer("two", [1.0, 2.0]),
    ]
    itl = summarise_cell(player.cell(requests, events), NO_SLO).itl_s
    assert (itl.n, itl.undefined) == (1, 2)


def test_no_one_and_ten_tokens_give_a_whole_report(player, tmp_path):  # E1
    requests = [player.request(name, out=n) for name, n in (("none", 5), ("one", 1), ("ten", 10))]
    events = [
        player.end(0.1, "none"),
        *player.answer("one", [0.2]),
        *player.answer("ten", [0.1 * i for i in range(1, 11)]),
    ]
    player.record(requests, events)
    close_run(tmp_path, {}, {})
    (result,) = json.loads((tmp_path / "run.json").read_text())["results"]
    assert (result["tpot_s"]["n"], result["tpot_s"]["undefined"]) == (1, 1)
    assert result["counts"]["failed"] == 1
    assert "the answer was empty where tokens were due" in (tmp_path / "report.md").read_text()


def test_a_latency_that_nobody_has_is_not_shown_as_a_number(player, tmp_path):  # E2
    requests = [player.request(name) for name in "abcde"]
    events = [player.end(0.1, name, "failed", "connection refused") for name in "abcde"]
    player.record(requests, events)
    close_run(tmp_path, {}, {})
    lines = (tmp_path / "report.md").read_text().splitlines()
    table = next(i for i, line in enumerate(lines) if "TTFT p95 ms" in line)
    cells = dict(zip(lines[table].split("|"), lines[table + 2].split("|"), strict=True))
    row = {name.strip(): value.strip() for name, value in cells.items()}
    for name in ("TTFT p50 ms", "TTFT p95 ms", "TPOT p95 ms", "ITL p95 ms", "E2E p95 ms"):
        assert row[name] == "n/a", name
    assert (row["output tok/s"], row["req/s"], row["ok/offered"]) == ("0", "0", "0/5")
