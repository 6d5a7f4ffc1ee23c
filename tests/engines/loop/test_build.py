"""From settings to a policy, without a model."""

from __future__ import annotations

import pytest

from engines.api import CbbenchError
from engines.loop.build import make_policy, resolved_budget
from engines.loop.policies.admission import FullReservation, PredictedPeak, Watermark
from engines.loop.policies.chunked import ChunkedPolicy
from engines.loop.policies.orca import OrcaPolicy
from engines.loop.policies.orders import PRIORITY, SHORTEST_JOB, Fair
from engines.loop.policies.prefill_first import PrefillFirstPolicy
from engines.loop.policies.registry import PolicyContext, installed_policies
from engines.loop.policies.rules import Rules
from engines.loop.policies.static import StaticPolicy
from engines.loop.policies.victims import LEAST_PROGRESS, MOST_BLOCKS
from engines.loop.policies.window import WindowPolicy
from engines.registry import installed_engines, parse_engines

CPU = PolicyContext("cpu", 4096)


def made(text, context=CPU):
    (spec,) = parse_engines(text, installed_engines())
    return make_policy(spec.settings, context)


def test_continuous_is_the_loop_with_the_chunked_policy():
    assert made("continuous") == made("loop") == ChunkedPolicy(16, 256)


@pytest.mark.parametrize("name", sorted(installed_policies()))
def test_every_installed_policy_is_built_and_bears_its_name(name):
    policy = made(f"loop[policy={name},max_num_seqs=5]")
    assert policy.name == name
    assert policy.limits.max_num_seqs == 5


def test_settings_reach_their_policy():
    text = (
        "loop[max_num_seqs=3,max_num_batched_tokens=9,long_prefill_token_threshold=4,"
        "enable_chunked_prefill=false]"
    )
    assert made(text) == ChunkedPolicy(3, 9, 4, False)
    assert made("loop[policy=static,max_num_seqs=5,order=sjf]") == StaticPolicy(5, SHORTEST_JOB)
    window = "loop[policy=window,max_num_seqs=5,max_delay_ms=20,order=fair,fair_by=client]"
    assert made(window) == WindowPolicy(5, 0.02, Fair("client"))
    assert made("loop[policy=orca,max_num_seqs=2]") == OrcaPolicy(2)
    first = "loop[policy=prefill-first,max_num_batched_tokens=99,preemption=swap]"
    assert made(first) == PrefillFirstPolicy(16, 99, Rules(preemption="swap"))


@pytest.mark.parametrize(
    ("text", "rules"),
    [
        ("order=priority", Rules(order=PRIORITY)),
        ("admission=watermark,watermark=0.25", Rules(admission=Watermark(0.25))),
        (
            "admission=full,victim=most-blocks",
            Rules(admission=FullReservation(), victim=MOST_BLOCKS),
        ),
        ("admission=peak", Rules(admission=PredictedPeak())),
        ("victim=least-progress", Rules(victim=LEAST_PROGRESS)),
    ],
)
def test_rules_are_put_together_from_their_names(text, rules):
    assert made(f"continuous[{text}]").rules == rules


@pytest.mark.parametrize(
    ("text", "context", "budget"),
    [
        ("continuous", CPU, 256),
        ("continuous", PolicyContext("cuda", 4096), 2048),
        ("continuous[max_num_batched_tokens=77]", PolicyContext("cuda", 4096), 77),
        ("loop[policy=prefill-first]", PolicyContext("cuda", 1234), 1234),
        ("loop[policy=orca]", CPU, None),
    ],
)
def test_the_token_budget_follows_policy_and_device_unless_given(text, context, budget):
    expected = {} if budget is None else {"max_num_batched_tokens": budget}
    assert resolved_budget(made(text, context)) == expected


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("loop[policy=best]", "unknown policy 'best'; known: chunked, orca, prefill-first, static"),
        ("loop[policy=chunkd]", "did you mean 'chunked'"),
        ("continuous[policy=static]", "use 'loop\\[policy=static\\]'"),
        (
            "continuous[max_delay_ms=5]",
            "'max_delay_ms' of 'continuous' goes with policy=window, here it is policy=chunked",
        ),
        ("loop[policy=orca,victim=newest]", "goes with policy=chunked or prefill-first, here it"),
        ("continuous[order=lifo]", "expected one of fcfs, priority, sjf, srpt, fair"),
        ("continuous[watermark=1]", "expected a number from 0 to below 1"),
    ],
)
def test_what_cannot_be_is_said(text, complaint):
    with pytest.raises(CbbenchError, match=complaint):
        made(text)
