"""Which engines are put side by side, and what a difference between them may be credited to."""

from __future__ import annotations

import pytest

from harness.results.pairs import choose_pairs
from harness.results.values import EngineSummary


def loop(policy, **settings):
    known = {"policy": policy, "max_num_seqs": 8, "allocator": "paged", "reserve": None}
    return engine("loop", {**known, **settings})


def engine(name, settings):
    return EngineSummary(
        name=name, spec=name, settings=settings, slots=8, kv_tokens=100, max_model_len=64
    )


def kinds(engines, baseline=None):
    pairs = choose_pairs(list(engines), engines, baseline)
    return {(pair.baseline, pair.engine): (pair.kind, pair.also_different) for pair in pairs}


def test_each_of_the_three_causes_is_told_apart():
    engines = {
        "g": engine("static", {"max_batch_size": 8}),
        "ls": loop("static"),
        "c": loop("chunked", max_num_batched_tokens=256),
        "m": loop("chunked", allocator="contiguous", reserve="max"),
    }
    found = kinds(engines)
    assert found["g", "ls"] == ("runtime", ())
    assert found["ls", "c"] == ("scheduler", ())
    assert found["m", "c"][0] == "memory"
    assert found["g", "c"][0] == "engines"


def test_every_policy_is_compared_with_static_batches_over_the_same_memory():
    engines = {
        "p": loop("prefill-first", max_num_batched_tokens=4096),
        "s": loop("static"),
        "c": loop("chunked", max_num_batched_tokens=256),
        "o": loop("orca", allocator="contiguous", reserve="max"),
    }
    found = kinds(engines)
    schedulers = {pair for pair, (kind, _) in found.items() if kind == "scheduler"}
    assert schedulers == {("s", "p"), ("s", "c")}
    assert found["p", "o"][0] == "engines"
    assert any("allocator" in item for item in found["p", "o"][1])


def test_without_static_batches_the_first_loop_is_the_reference():
    engines = {"c": loop("chunked", max_num_batched_tokens=256), "o": loop("orca")}
    assert kinds(engines) == {("c", "o"): ("scheduler", ())}


def test_a_policys_own_settings_belong_to_it():
    engines = {
        "c": loop("chunked", max_num_batched_tokens=256, order="fcfs"),
        "p": loop("prefill-first", max_num_batched_tokens=4096, order="sjf"),
    }
    assert kinds(engines) == {("c", "p"): ("scheduler", ())}


@pytest.mark.parametrize("setting", ["max_num_seqs", "block_size", "kv_memory", "attention"])
def test_what_is_runtime_or_memory_is_said_beside_the_scheduler(setting):
    engines = {"s": loop("static", **{setting: 1}), "c": loop("chunked", **{setting: 2})}
    assert kinds(engines) == {("s", "c"): ("scheduler", (f"{setting} (1 and 2)",))}


def test_one_policy_with_other_settings_is_just_two_engines():
    engines = {
        "a": loop("chunked", max_num_batched_tokens=256),
        "b": loop("chunked", max_num_batched_tokens=512),
    }
    found = kinds(engines)
    assert found == {("a", "b"): ("engines", ("max_num_batched_tokens (256 and 512)",))}


def test_a_named_baseline_is_compared_with_all_others():
    engines = {"a": engine("dynamic", {}), "b": engine("static", {}), "c": loop("chunked")}
    assert set(kinds(engines, "b")) == {("b", "a"), ("b", "c")}
