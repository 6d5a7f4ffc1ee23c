"""The same draw as anywhere else, and a split in which each request has one sender."""

from __future__ import annotations

import math

import pytest

from harness.locust_load.options import ARGUMENTS, read_load_options
from harness.locust_load.plan import choose_load, draw_plan
from workloads.workload import ModelLimits, draw, open_workload

LIMITS = ModelLimits(4096, 4096, tuple(range(8)))
AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens\n" + "".join(
    f"2023-11-16 18:15:4{second}.0000000,{10 + second},4\n" for second in range(5)
)


def plan(users: int = 2, **given: object):
    defaults = {argument.name: argument.default for argument in ARGUMENTS}
    return draw_plan(read_load_options(defaults | given, "http://x", users), LIMITS)


def test_the_workload_is_the_one_that_cbbench_draws():
    own = draw(open_workload("chat-mix"), seed=3, limits=LIMITS, num_prompts=20)
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
    drawn = plan(num_prompts="20", request_rate="4")
    shares = [drawn.share(worker, workers) for worker in range(workers)]
    assert sorted(i for own in shares for chain in own for i in chain) == list(range(20))
    for own in shares:
        assert all(len(chain) == 1 for chain in own)
        times = [drawn.requests[i].scheduled_s for (i,) in own]
        assert times == sorted(times)


def test_a_sessions_turns_stay_with_one_worker_in_a_closed_loop_and_in_order():
    drawn = plan(workload="multi-turn", users=3)
    shares = [drawn.share(worker, 3) for worker in range(3)]
    sessions = [{drawn.requests[i].session for chain in own for i in chain} for own in shares]
    assert not sessions[0] & sessions[1] | sessions[1] & sessions[2] | sessions[0] & sessions[2]
    for own in shares:
        for chain in own:
            assert len({drawn.requests[i].session for i in chain}) == 1
            lengths = [len(drawn.requests[i].prompt_token_ids) for i in chain]
            assert lengths == sorted(lengths)
    assert any(len(chain) > 1 for own in shares for chain in own)


def test_at_a_rate_turns_come_as_scheduled():
    drawn = plan(workload="multi-turn", request_rate="5")
    assert all(len(chain) == 1 for chain in drawn.chains())


def test_ends_of_text_are_kept_unless_asked_for():
    assert all(request.ignore_eos for request in plan().requests)
    natural = plan(no_ignore_eos=True)
    assert not any(request.ignore_eos for request in (*natural.requests, *natural.warmup))
