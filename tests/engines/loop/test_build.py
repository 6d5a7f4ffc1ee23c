"""From settings to a policy, without a model."""

from __future__ import annotations

import pytest

from engines.api import CbbenchError
from engines.loop.build import make_policy, with_token_budget
from engines.loop.policies.chunked import ChunkedPolicy
from engines.loop.policies.static import StaticPolicy
from engines.loop.policies.window import WindowPolicy
from engines.registry import installed_engines, parse_engines


def settings_of(text):
    (spec,) = parse_engines(text, installed_engines())
    return with_token_budget(spec.settings, "cpu")


def test_continuous_is_the_loop_with_the_chunked_policy():
    continuous, loop = settings_of("continuous"), settings_of("loop")
    assert make_policy(continuous) == make_policy(loop) == ChunkedPolicy(16, 256)


def test_settings_reach_their_policy():
    text = (
        "loop[max_num_seqs=3,max_num_batched_tokens=9,long_prefill_token_threshold=4,"
        "enable_chunked_prefill=false]"
    )
    assert make_policy(settings_of(text)) == ChunkedPolicy(3, 9, 4, False)
    assert make_policy(settings_of("loop[policy=static,max_num_seqs=5]")) == StaticPolicy(5)
    window = settings_of("loop[policy=window,max_num_seqs=5,max_delay_ms=20]")
    assert make_policy(window) == WindowPolicy(5, 0.02)


def test_the_token_budget_follows_the_device_unless_given():
    (spec,) = parse_engines("continuous", installed_engines())
    assert with_token_budget(spec.settings, "cuda")["max_num_batched_tokens"] == 2048
    (spec,) = parse_engines("continuous[max_num_batched_tokens=77]", installed_engines())
    assert with_token_budget(spec.settings, "cuda")["max_num_batched_tokens"] == 77


def test_an_unknown_policy_is_named():
    with pytest.raises(CbbenchError, match="unknown policy 'best'; known: static, window, chunked"):
        make_policy({"policy": "best", "max_num_seqs": 1})


def test_continuous_may_not_be_given_another_policy():
    with pytest.raises(CbbenchError, match="use 'loop\\[policy=static\\]'"):
        settings_of("continuous[policy=static]")
