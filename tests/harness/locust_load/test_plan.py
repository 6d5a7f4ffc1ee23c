"""The same draw as anywhere else, and a split in which each request has one sender."""

from __future__ import annotations

import math

import pytest

from harness.locust_load.options import ARGUMENTS, read_load_options
from harness.locust_load.plan import choose_load, draw_plan, share
from harness.locust_load.tokens import TINY_LIMITS
from workloads.workload import draw, open_workload

AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens\n" + "".join(
    f"2023-11-16 18:15:4{second}.0000000,{10 + second},4\n" for second in range(5)
)


def plan(users: int = 2, **given: object):
    defaults = {argument.name: argument.default for argument in ARGUMENTS}
    return draw_plan(read_load_options(defaults | given, "http://x", users), TINY_LIMITS)


def test_the_workload_is_the_one_that_cbbench_draws():
    own = draw(open_workload("chat-mix"), seed=3, limits=TINY_LIMITS, num_prompts=20)
    drawn = plan(seed="3", num_prompts="20", request_rate="4").workload
    assert drawn.hash == own.hash
    assert drawn.requests == own.requests


def test_a_rate_gives_the_schedule_at_that_rate():
    drawn = plan(num_prompts="20", request_rate="4")
    assert not drawn.closed_loop
    assert drawn.load.name == "4 req/s, at most 2"
    unit = [request.scheduled_s for request in drawn.workload.requests]
    assert [r.scheduled_s for r in drawn.requests] == pytest.approx([t / 4 for t in unit])


@pytest.mark.parametrize("rate", [None, "inf"])
def test_without_a_rate_the_loop_is_closed(rate):
    drawn = plan(users=5, request_rate=rate)
    assert drawn.closed_loop
    assert (drawn.load.name, drawn.load.max_concurrency) == ("closed-loop-5", 5)


def test_a_trace_without_a_rate_keeps_its_own_times(tmp_path):
    path = tmp_path / "trace.csv"
    path.write_text(AZURE)
    drawn = plan(workload=f"trace:{path}")
    assert not drawn.closed_loop
    assert [request.scheduled_s for request in drawn.requests] == [0.0, 1.0, 2.0, 3.0, 4.0]
    assert choose_load(drawn.workload, 10.0, 2).request_rate == 10.0
    assert choose_load(drawn.workload, math.inf, 2).request_rate == math.inf


@pytest.mark.parametrize("workers", [1, 2, 3, 7, 30])
def test_every_request_has_one_worker(workers):
    requests = plan(num_prompts="20", request_rate="4").requests
    shares = [share(requests, worker, workers) for worker in range(workers)]
    assert sorted(index for own in shares for index in own) == list(range(20))
    for own in shares:
        assert [requests[i].scheduled_s for i in own] == sorted(
            requests[i].scheduled_s for i in own
        )


def test_ends_of_text_are_kept_unless_asked_for():
    assert all(request.ignore_eos for request in plan().requests)
    natural = plan(no_ignore_eos=True)
    assert not any(request.ignore_eos for request in (*natural.requests, *natural.warmup))
