"""What a metrics page says, by the names of four servers; what is not said stays unknown."""

from __future__ import annotations

import asyncio

import pytest

from engines.remote.scrape import Reading, Scraper, read_metrics

VLLM = """
# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="m"} 3.0
vllm:num_requests_running{engine="1",model_name="m"} 4.0
vllm:num_requests_waiting{engine="0",model_name="m"} 2.0
vllm:num_requests_waiting_by_reason{reason="capacity"} 9.0
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.25
vllm:kv_cache_usage_perc{engine="1",model_name="m"} 0.75
# TYPE vllm:num_preemptions counter
vllm:num_preemptions_total{engine="0",model_name="a \\"strange\\", name"} 5.0
vllm:num_preemptions_created{engine="0",model_name="m"} 1.7e+09
vllm:prefix_cache_queries_total{engine="0"} 100.0
vllm:prefix_cache_hits_total{engine="0"} 40.0
vllm:time_to_first_token_seconds_bucket{le="0.1"} 7.0
"""
SGLANG = """
sglang:num_running_reqs{model_name="m"} 2.0
sglang:num_queue_reqs{model_name="m"} 1.0
sglang:token_usage{model_name="m"} 0.28
sglang:num_retracted_requests_total{model_name="m"} 3.0
sglang:cached_tokens_total{cache_source="device"} 10.0
sglang:prompt_tokens_total{model_name="m"} 50.0
"""
TGI = "# TYPE tgi_queue_size gauge\ntgi_queue_size 7\ntgi_batch_current_size 4\n"


def test_vllms_names_are_read_over_all_its_engines():
    assert read_metrics(VLLM) == Reading(5, 40, 100, 0.5, 7, 2)


def test_sglangs_names_are_read():
    assert read_metrics(SGLANG) == Reading(3, 10, 50, 0.28, 2, 1)


def test_tgis_names_are_read_and_the_rest_is_unknown():
    assert read_metrics(TGI) == Reading(running=4, waiting=7)


def test_our_own_servers_names_are_read():
    from engines.api import StepEvents
    from harness.server.metrics import ServerMetrics

    metrics = ServerMetrics("m")
    metrics.in_flight(3)
    metrics.step(StepEvents(0.0))
    found = read_metrics(metrics.exposition().decode())
    assert (found.waiting, found.running, found.preemptions) == (3, 0, 0)
    assert None not in (found.kv_usage, found.prefix_hit_tokens, found.prefix_query_tokens)


@pytest.mark.parametrize(
    "page",
    ["", "<html>", "up 1\n", "vllm:num_requests_running{", "vllm:num_requests_running x\n", "\x00"],
)
def test_other_pages_say_nothing(page):
    assert not read_metrics(page).says_something


@pytest.mark.parametrize("value", ["NaN", "-1"])
def test_values_that_cannot_be_are_unknown(value):
    assert read_metrics(f"vllm:num_requests_running {value}\n") == Reading()


def page(preemptions=0, hits=0, queries=0):
    return (
        f"vllm:num_preemptions_total {preemptions}\nvllm:prefix_cache_hits_total {hits}\n"
        f"vllm:prefix_cache_queries_total {queries}\n"
    )


def reported(before, after):
    scraper = Scraper("http://127.0.0.1:9", None)
    scraper.begin(before)
    return scraper.report(after)


def test_counts_are_those_of_the_run():
    told = reported(page(5, 10, 100), page(7, 30, 200))
    assert (told["preemptions"], told["prefix_hit_tokens"]) == (2, 20)
    assert told["prefix_query_tokens"] == 100
    assert (told["kv_usage"], told["running"], told["waiting"]) == (None, None, None)


def test_a_counter_that_went_back_is_unknown():
    assert reported(page(5), page(2))["preemptions"] is None


@pytest.mark.parametrize(("before", "after"), [("", page()), (page(), ""), ("", "")])
def test_a_server_that_tells_nothing_has_no_report(before, after):
    assert reported(before, after) is None


@pytest.mark.loopback
def test_gauges_are_looked_at_while_the_run_goes_on(serve, play):
    busy = "vllm:num_requests_running 3\nvllm:num_preemptions_total {}\n"

    async def script(call):
        await asyncio.sleep(1.3)
        await call.stream({"choices": [{"text": "a", "finish_reason": "stop"}]}, "[DONE]")

    server = serve(script)
    server.metrics = lambda: busy.format(len(server.posts))
    told = play(server).engine.observations()["server"]
    assert told["running"] == {"mean": 3, "peak": 3}
    assert told["scrapes"] >= 4
    assert told["preemptions"] == 1
    assert told["kv_usage"] is None


@pytest.mark.loopback
@pytest.mark.parametrize("settings", [{}, {"scrape": False}])
def test_no_page_or_no_wish_is_no_report(serve, play, settings):
    assert play(serve(), **settings).engine.observations()["server"] is None
