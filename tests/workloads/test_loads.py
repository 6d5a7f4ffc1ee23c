from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import pytest

from engines.api import CbbenchError
from workloads.loads import (
    Load,
    RelativeLoad,
    all_at_once,
    at_load,
    at_rate,
    loads_for,
    own_times,
    relative,
)
from workloads.workload import ModelLimits, Workload, draw, open_workload


@pytest.fixture
def constant(limits: ModelLimits) -> Workload:
    return draw(
        open_workload("uniform"), seed=0, limits=limits, num_prompts=1000, burstiness=math.inf
    )


@pytest.fixture
def trace(write: Callable[[str, str], Path], limits: ModelLimits) -> Workload:
    rows = "".join(f"2023-11-16 18:15:{s},5,5\n" for s in ("10.00", "10.01", "16.00", "20.00"))
    path = write("t.csv", "TIMESTAMP,ContextTokens,GeneratedTokens\n" + rows)
    return draw(open_workload(f"trace:{path}"), seed=0, limits=limits)


def times(workload: Workload, load: Load) -> list[float]:
    return [request.scheduled_s for request in at_load(workload, load)]


def test_infinite_rate_puts_all_arrivals_at_t0(constant: Workload) -> None:
    assert set(times(constant, all_at_once())) == {0.0}


def test_rate_divides_the_unit_arrivals(constant: Workload) -> None:
    assert times(constant, at_rate(10.0))[:4] == [0.0, 0.1, 0.2, 0.3]
    assert times(constant, at_rate(200.0))[-1] == pytest.approx(999 / 200)
    assert at_load(constant, at_rate(1.0)) == constant.requests


def test_nothing_but_the_arrivals_changes_with_the_load(chat_mix: Workload) -> None:
    played = at_load(chat_mix, at_rate(3.0))
    assert [(r.request_id, r.prompt_token_ids, r.max_tokens) for r in played] == [
        (r.request_id, r.prompt_token_ids, r.max_tokens) for r in chat_mix.requests
    ]


@pytest.mark.parametrize("rate", [0.0, -1.0, math.nan])
def test_rate_without_meaning_is_refused(rate: float) -> None:
    with pytest.raises(CbbenchError, match="a number of requests a second > 0"):
        at_rate(rate)


@pytest.mark.parametrize("cap", [0, -1])
def test_concurrency_below_1_is_refused(cap: int) -> None:
    with pytest.raises(CbbenchError, match="lets nothing run"):
        all_at_once(cap)
    with pytest.raises(CbbenchError, match="lets nothing run"):
        relative(0.7, max_concurrency=cap)


@pytest.mark.parametrize("fraction", [0.0, -0.7, math.nan, math.inf])
def test_fraction_without_meaning_is_refused(fraction: float) -> None:
    with pytest.raises(CbbenchError, match="give a fraction > 0"):
        RelativeLoad("x", fraction)


def test_relative_load_is_resolved_by_the_best_rate() -> None:
    assert relative(0.7).resolve(10.0) == Load("poisson-70%", 7.0)
    assert relative(0.7, 0.5, 8).resolve(2.0) == Load("gamma(0.5)-70%, at most 8", 1.4, 8)


def test_loads_are_named_for_people() -> None:
    assert at_rate(math.inf).name == "all-at-once"
    assert at_rate(math.inf, 4).name == "closed-loop-4"
    assert at_rate(2.0).name == "2 req/s"
    assert at_rate(0.25, 4).name == "0.25 req/s, at most 4"


def test_trace_at_its_own_rate_is_left_as_it_is(trace: Workload) -> None:
    assert times(trace, own_times(trace)) == [0.0, 0.01, 6.0, 10.0]
    assert trace.default_loads == (own_times(trace),)


def test_trace_at_another_rate_keeps_its_pattern(trace: Workload) -> None:
    assert own_times(trace).request_rate == 0.3
    assert times(trace, at_rate(0.6)) == pytest.approx([0.0, 0.005, 3.0, 5.0])


def test_trace_of_one_instant_has_no_rate_to_change(
    trace: Workload, limits: ModelLimits, tmp_path: Path
) -> None:
    single = draw(
        open_workload(f"trace:{tmp_path / 't.csv'}"), seed=0, limits=limits, num_prompts=1
    )
    assert times(single, own_times(single)) == [0.0]
    with pytest.raises(CbbenchError, match="all its arrivals at one instant"):
        at_load(single, at_rate(2.0))


def test_loads_of_a_run_are_the_rates_given_or_the_defaults(
    chat_mix: Workload, trace: Workload
) -> None:
    assert loads_for(chat_mix) == chat_mix.default_loads
    assert loads_for(chat_mix, [1.0, math.inf]) == (at_rate(1.0), all_at_once())
    assert loads_for(chat_mix, max_concurrency=8) == (
        all_at_once(8),
        relative(0.7, max_concurrency=8),
    )
    assert [load.name for load in loads_for(trace, max_concurrency=2)] == ["trace, at most 2"]
