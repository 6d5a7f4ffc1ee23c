"""What the report says of clients and servers: nothing that was not done."""

from __future__ import annotations

import pytest

from harness.records import CellTrailer
from harness.results.file import close_run
from harness.show.report.markdown import report_text

CERTIFICATE = {
    **{"asked_req_s": 50.0, "achieved_req_s": 49.9, "requests": 100, "failed": 0},
    **{"most_streams": 30, "lag_p50_s": 0.001, "lag_p99_s": 0.002, "lag_max_s": 0.003},
    **{"server_late_s": 0.001, "processes": 1, "passed": True},
}
SERVER = {
    **{"scrapes": 5, "missed_scrapes": 0, "preemptions": 3},
    **{"prefix_hit_tokens": 25, "prefix_query_tokens": 100},
    **{"kv_usage": {"mean": 0.25, "peak": 0.5}, "running": {"mean": 3, "peak": 4}, "waiting": None},
}


@pytest.fixture
def report_of(player):
    def report(certificate, server=None):
        client = {"processes": 2, "connection_retries": 1, "certificate": certificate}
        trailer = CellTrailer(9.0, warmup_requests=1, remote={"client": client, "server": server})
        player.record([player.request("a")], player.answer("a", [1.0, 2.0]), trailer=trailer)
        return report_text(close_run(player.folder, {"engine_order": ["fake"]}, {}))

    return report


def test_a_client_that_certified_itself_is_shown_with_what_it_did(report_of):
    text = report_of(CERTIFICATE)
    assert "The client, certified against a server without a model before the run:" in text


def test_a_client_that_did_not_is_not_said_to_have(report_of):
    text = report_of(None)
    assert "\nThe client:\n" in text
    assert "certified against" not in text


def test_a_servers_own_metrics_have_a_row(report_of):
    (titles, _, row) = report_of(None, SERVER).split("own metrics said")[1].splitlines()[2:5]
    told = dict(zip(titles.split("|"), row.split("|"), strict=True))
    told = {title.strip(): value.strip() for title, value in told.items()}
    assert told["preemptions"] == "3"
    assert (told["KV use, mean"], told["KV use, peak"]) == ("25.0%", "50.0%")
    assert told["prefix hits"] == "25.0%"
    assert told["scrapes"] == "5"
