"""`/metrics` counts what was served, under names that the documentation lists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from engines.api import Finish, Request, RequestStats, StepEvents, StepRow
from engines.clock import VirtualClock
from harness.server.desk import Desk
from harness.server.mailbox import Mailbox
from harness.server.metrics import ServerMetrics

DOCUMENT = Path(__file__).parents[3] / "docs" / "server.md"


def value(metrics, name, **labels):
    wanted = "".join(sorted(f'{k}="{v}"' for k, v in {"model_name": "tiny", **labels}.items()))
    for line in metrics.exposition().decode().splitlines():
        series, _, number = line.rpartition(" ")
        found, _, rest = series.partition("{")
        if found == f"cbbench:{name}" and "".join(sorted(rest[:-1].split(","))) == wanted:
            return float(number)
    raise AssertionError(f"no series {name} {labels}")


def row(running, **fields):
    zeros = dict.fromkeys(
        ("compute_s", "schedule_s", "pack_s", "copy_s", "num_waiting", "useful_rows"), 0
    )
    counts = {"slots": 4, "prefill_tokens": 0, "decode_tokens": 0, "prompt": 0, "output": 0}
    return StepRow(step=0, start_s=0, end_s=0, num_running=running, **zeros, **counts | fields)


class Bench:
    """A desk on a clock that is moved by hand."""

    def __init__(self):
        self.clock = VirtualClock()
        self.metrics = ServerMetrics("tiny")
        self.sent = []
        self.desk = Desk(
            lambda submit, cancel: self.sent.append((submit, cancel)),
            self.clock,
            self.metrics,
            lambda function: function(),
        )

    def submit(self, *names, prompt=10):
        requests = [Request(name, (1,) * prompt, 5) for name in names]
        return self.desk.submit(requests, Mailbox(100), lambda: None)

    def step(self, tokens, finished=(), **fields):
        """One step that gives each named request so many tokens."""
        ids = [[7] * count for count in tokens.values()]
        step = row(len(tokens), **fields)
        self.desk.dispatch(StepEvents(0.0, list(tokens), ids, finished, step))


@pytest.fixture
def bench():
    return Bench()


def ended(name, **stats):
    return Finish(name, "ok", "length", "", RequestStats(**stats))


def test_latencies_count_from_the_arrival_by_the_definitions(bench):
    bench.submit("a")
    bench.clock.advance(0.5)
    bench.step({"a": 1})
    bench.clock.advance(0.3)
    bench.step({"a": 2})
    bench.clock.advance(0.1)
    bench.step({"a": 2}, [ended("a", queue_s=0.25, num_steps=3)])
    metrics = bench.metrics
    assert value(metrics, "time_to_first_token_seconds_sum") == pytest.approx(0.5)
    assert value(metrics, "request_time_per_output_token_seconds_sum") == pytest.approx(0.1)
    assert value(metrics, "e2e_request_latency_seconds_sum") == pytest.approx(0.9)
    assert value(metrics, "request_queue_time_seconds_sum") == pytest.approx(0.25)
    assert value(metrics, "generation_tokens_total") == 5
    assert value(metrics, "prompt_tokens_total") == 10
    assert value(metrics, "request_success_total", finished_reason="length") == 1


def test_one_token_has_no_time_per_token(bench):
    bench.submit("a", "b")
    bench.step({"a": 1, "b": 5}, [ended("a"), ended("b")])
    assert value(bench.metrics, "time_to_first_token_seconds_count") == 2
    assert value(bench.metrics, "request_time_per_output_token_seconds_count") == 0


def test_running_and_waiting_add_up_to_those_in_flight(bench):
    bench.submit("a", "b", "c")
    assert value(bench.metrics, "num_requests_waiting") == 3
    bench.step({"a": 1, "b": 1})
    assert value(bench.metrics, "num_requests_running") == 2
    assert value(bench.metrics, "num_requests_waiting") == 1
    bench.step({"a": 1, "b": 1}, [ended("a")])
    assert value(bench.metrics, "num_requests_running") == 1
    assert value(bench.metrics, "num_requests_waiting") == 1
    bench.step({"b": 1, "c": 1}, [ended("b"), ended("c")])
    assert value(bench.metrics, "num_requests_running") == 0
    assert value(bench.metrics, "num_requests_waiting") == 0


def test_an_idle_server_holds_no_memory(bench):
    bench.submit("a")
    bench.step({"a": 1}, blocks_used=3, blocks_cached=1, blocks_free=6)
    assert value(bench.metrics, "kv_cache_usage_perc") == pytest.approx(0.3)
    bench.step({"a": 1}, [ended("a")], blocks_used=3, blocks_cached=1, blocks_free=6)
    assert value(bench.metrics, "kv_cache_usage_perc") == 0


def test_what_leaves_is_neither_a_success_nor_a_latency(bench):
    (ticket,) = bench.submit("a")
    bench.step({"a": 1})
    bench.desk.end(ticket, "abort")
    bench.step({"a": 1})
    assert bench.sent[-1] == ((), ("a",))
    assert value(bench.metrics, "request_success_total", finished_reason="abort") == 1
    assert value(bench.metrics, "request_success_total", finished_reason="length") == 0
    assert value(bench.metrics, "e2e_request_latency_seconds_count") == 0
    assert value(bench.metrics, "num_requests_running") == 0


def test_the_time_in_the_queue_counts_of_all_that_ran(bench):
    bench.submit("a", "b", "c")
    stats = RequestStats(queue_s=0.25, num_steps=2)
    never = RequestStats(queue_s=None, num_steps=0)
    ends = [
        Finish("a", "cancelled", stats=stats),
        Finish("b", "failed", stats=stats),
        Finish("c", "cancelled", stats=never),
    ]
    bench.step({"a": 1, "b": 1}, ends)
    assert value(bench.metrics, "request_queue_time_seconds_count") == 2
    assert value(bench.metrics, "time_to_first_token_seconds_count") == 2
    assert value(bench.metrics, "e2e_request_latency_seconds_count") == 0


def test_the_engines_own_counts_are_summed(bench):
    bench.submit("a")
    bench.step({"a": 1}, preemptions=2, prompt=10, recomputed=4, padding=3)
    bench.step(
        {"a": 1}, [ended("a", prefix_hit_tokens=6, first_time_prompt=4)], output=1, preemptions=1
    )
    metrics = bench.metrics
    assert value(metrics, "num_preemptions_total") == 3
    assert value(metrics, "executed_positions_total", kind="prompt") == 10
    assert value(metrics, "executed_positions_total", kind="output") == 1
    assert value(metrics, "executed_positions_total", kind="recomputed") == 4
    assert value(metrics, "executed_positions_total", kind="padding") == 3
    assert value(metrics, "prefix_cache_hits_total") == 6
    assert value(metrics, "prefix_cache_queries_total") == 10
    assert value(metrics, "engine_steps_total") == 2


def test_silence_counts_only_while_somebody_waits(bench):
    bench.clock.advance(1000)
    assert bench.desk.silence_s == 0
    bench.submit("a")
    bench.clock.advance(5)
    bench.submit("b")
    assert bench.desk.silence_s == 5
    bench.step({"a": 1})
    assert bench.desk.silence_s == 0
    bench.clock.advance(2)
    assert bench.desk.silence_s == 2


def test_paths_that_are_no_route_make_no_label_each(bench):
    for path in ("/v1/completions", "/x", "/y", "/v1/models/tiny"):
        bench.metrics.answered(path, 200)
    assert value(bench.metrics, "http_responses_total", path="/v1/completions", status="200") == 1
    assert value(bench.metrics, "http_responses_total", path="other", status="200") == 3


def test_the_documentation_lists_every_metric_and_no_other(bench):
    types = re.findall(r"^# TYPE (\S+)", bench.metrics.exposition().decode(), re.MULTILINE)
    exposed = {name for name in types if not name.endswith("_created")}
    listed = set(re.findall(r"`(cbbench:\w+)", DOCUMENT.read_text(encoding="utf-8")))
    assert exposed == listed


@pytest.mark.loopback
def test_a_served_request_shows(echo):
    before = echo.metric("generation_tokens_total")
    echo.post(prompt=[500] * 7, max_tokens=4)
    assert echo.metric("generation_tokens_total") == before + 4
    assert echo.get("/metrics").headers["content-type"].startswith("text/plain; version=")
