"""What is known of a client and of the server behind it, and what the verdict makes of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from engines.api import RequestStats
from harness.metrics import Goodput, summarise_cell
from harness.records import CellTrailer
from harness.verdict import Evidence, judge_cell

CERTIFICATE = {
    **{"asked_req_s": 50.0, "achieved_req_s": 50.0, "requests": 100, "failed": 0},
    **{"most_streams": 30, "lag_p50_s": 0.001, "lag_p99_s": 0.002, "lag_max_s": 0.003},
    **{"server_late_s": 0.001, "processes": 1, "passed": True},
}
CLIENT = {"processes": 1, "connection_retries": 0, "certificate": CERTIFICATE}
SERVER = {
    **{"scrapes": 5, "missed_scrapes": 0, "preemptions": 3},
    **{"prefix_hit_tokens": 25, "prefix_query_tokens": 100},
    **{"kv_usage": {"mean": 0.25, "peak": 0.5}, "running": {"mean": 3, "peak": 4}, "waiting": None},
}


def cell(player, client=CLIENT, server=SERVER, stats=None):
    known = stats or RequestStats(sent_s=0.0, counted_by="usage", served_prompt_tokens=None)
    trailer = CellTrailer(9.0, warmup_requests=1, remote={"client": client, "server": server})
    times = [1.0, 2.0, 8.0]
    return player.cell([player.request("a")], player.answer("a", times, known), trailer=trailer)


def reasons(record):
    result = summarise_cell(record, Goodput())
    return judge_cell(Evidence(record, result, measured_s=9.0)).reasons


def test_a_servers_own_counts_fill_in_what_requests_cannot_say(player):
    result = summarise_cell(cell(player), Goodput())
    assert (result.preemptions.total, result.preemptions.requests) == (3, None)
    assert result.prefix_hit_share == 0.25
    assert (result.server.kv_usage.mean, result.server.kv_usage.peak) == (0.25, 0.5)
    assert result.server.waiting is None
    assert result.client.certificate.most_streams == 30
    assert result.client.counted_by == {"usage": 1}


def test_what_each_request_says_of_its_prefix_goes_before_the_servers_sum(player):
    stats = RequestStats(sent_s=0.0, prefix_hit_tokens=0)
    assert summarise_cell(cell(player, stats=stats), Goodput()).prefix_hit_share == 0


def test_engines_in_process_have_neither_side(player):
    result = summarise_cell(
        player.cell([player.request("a")], player.answer("a", [1.0])), Goodput()
    )
    assert (result.client, result.server) == (None, None)


def test_a_sound_client_gives_no_reason(player):
    assert reasons(cell(player, server=None)) == ()


@pytest.mark.parametrize(
    ("client", "word"),
    [
        (
            {**CLIENT, "certificate": {**CERTIFICATE, "achieved_req_s": 41.0, "passed": False}},
            "did not keep up when it certified itself: 41.0 requests/s sent of 50.0 asked, "
            "lag p99 2.0 ms",
        ),
        ({**CLIENT, "connection_retries": 2}, "2 times a request was sent again"),
    ],
)
def test_a_client_that_cannot_or_does_not_send_as_asked_is_suspect(player, client, word):
    (reason,) = reasons(cell(player, client, server=None))
    assert word in reason


def test_a_burst_that_was_not_judged_is_no_reason(player):
    certificate = {**CERTIFICATE, "asked_req_s": None, "achieved_req_s": None, "passed": None}
    assert reasons(cell(player, {**CLIENT, "certificate": certificate}, server=None)) == ()


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"counted_by": "events"}, "the output tokens of 1 requests are estimates"),
        ({"served_prompt_tokens": 99}, "other prompt lengths than those drawn for 1 requests"),
    ],
)
def test_counts_that_cannot_be_trusted_are_suspect(player, change, word):
    stats = replace(RequestStats(sent_s=0.0, counted_by="usage"), **change)
    (reason,) = reasons(cell(player, server=None, stats=stats))
    assert word in reason
