"""Options of `cbbench run` are read, or refused in a sentence that names them."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from engines.api import CbbenchError
from engines.registry import EngineEntry, installed_engines
from harness.run.config import DEFAULT_BUDGET_S, RunConfig, RunOptions, read_options, settings_text

INSTALLED = {
    name: EngineEntry(name=name, summary="", settings=(), builder="nowhere:build", preset={})
    for name in ("one", "two")
}
PLAIN = RunOptions(engines="one,two", workload="uniform")


def read(**changes: Any) -> RunConfig:
    return read_options(replace(PLAIN, **changes), INSTALLED)


def test_defaults() -> None:
    config = read()
    assert [spec.label for spec in config.engines] == ["one", "two"]
    assert config.budget_s == DEFAULT_BUDGET_S
    assert config.request_rate is None
    assert config.context.kv_memory == 512 * 2**20


@pytest.mark.parametrize(
    "option",
    [
        "threads",
        "max_model_len",
        "num_prompts",
        "max_concurrency",
        "input_len",
        "output_len",
        "repeats",
    ],
)
@pytest.mark.parametrize("value", ["0", "-1", "nan", "1e999", "1.5", "abc", "", "inf"])
def test_counts_take_whole_numbers_from_one(option: str, value: str) -> None:
    with pytest.raises(CbbenchError, match=f"--{option.replace('_', '-')} is .*; expected a whole"):
        read(**{option: value})


@pytest.mark.parametrize("option", ["request_rate", "burstiness", "trace_scale", "budget"])
@pytest.mark.parametrize("value", ["0", "-1", "nan", "1e999", "-inf", "abc", ""])
def test_rates_and_times_take_positive_numbers(option: str, value: str) -> None:
    with pytest.raises(CbbenchError, match=f"--{option.replace('_', '-')} is .*; expected a"):
        read(**{option: value})


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("range_ratio", "1"),
        ("range_ratio", "-0.1"),
        ("range_ratio", "nan"),
        ("seed", "-1"),
        ("num_warmups", "-1"),
        ("kv_memory", "0"),
        ("kv_memory", "1e999"),
        ("device", "gpu"),
        ("dtype", "fp32"),
        ("order", "alphabetical"),
        ("budget", "5 parsecs"),
        ("trace_scale", "inf"),
        ("until_ci", "0.05"),
        ("until_ci", "5"),
        ("until_ci", "0%"),
        ("until_ci", "-5%"),
        ("until_ci", "100%"),
        ("until_ci", "nan%"),
        ("until_ci", "%"),
    ],
)
def test_other_nonsense_is_refused(option: str, value: str) -> None:
    with pytest.raises(CbbenchError, match=f"--{option.replace('_', '-')} is .*; expected"):
        read(**{option: value})


def test_infinite_rate_is_said_in_letters() -> None:
    assert read(request_rate="inf").request_rate == math.inf
    assert read(burstiness="inf").burstiness == math.inf


@pytest.mark.parametrize(
    ("text", "expected"),
    [("110s", 110.0), ("10m", 600.0), ("2min", 120.0), ("1h", 3600.0), ("90", 90.0)],
)
def test_budget_takes_units(text: str, expected: float) -> None:
    assert read(budget=text).budget_s == expected


def test_repeats_alone_lift_the_default_budget() -> None:
    assert read(repeats="3").budget_s is None
    assert read(repeats="3", budget="60s").budget_s == 60.0


def test_until_ci_is_a_percentage_and_lifts_the_default_budget() -> None:
    config = read(until_ci="2.5%")
    assert (config.until_ci, config.budget_s, config.repeats) == (0.025, None, None)
    assert read(until_ci="5%", budget="10m", repeats="8").budget_s == 600.0
    assert read().until_ci is None


@pytest.mark.parametrize("repeats", ["1", "4", "21"])
def test_until_ci_needs_as_many_rounds_as_its_looks_allow(repeats: str) -> None:
    with pytest.raises(CbbenchError, match="looks after 5, 8, 12, 20 rounds; expected 5 to 20"):
        read(until_ci="5%", repeats=repeats)


def test_until_ci_needs_two_engines() -> None:
    with pytest.raises(CbbenchError, match="expected two or more"):
        read(engines="one", until_ci="5%")


@pytest.mark.parametrize(
    "engine",
    [
        'server[command="srv --api-key=sk-1 {port}",api_key_env=K]',
        "openai[api_key_env=K,model=sk-1]",
        'openai[api_key_env=K,extra_body={"key":"sk-1"}]',
    ],
)
def test_a_key_in_a_spec_is_refused_and_not_repeated(
    engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("K", "sk-1")
    with pytest.raises(CbbenchError, match="show the key that api_key_env=K names") as raised:
        read_options(replace(PLAIN, engines=engine), installed_engines())
    assert "sk-1" not in str(raised.value)


def test_a_key_that_no_setting_shows_is_no_mistake(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("K", "sk-1")
    engine = 'server[command="srv --api-key {key} sk-12 {port}",api_key_env=K]'
    assert len(read_options(replace(PLAIN, engines=engine), installed_engines()).engines) == 1


def test_unknown_engine_is_told_with_those_installed() -> None:
    with pytest.raises(CbbenchError, match=r"unknown engine 'thre'.*one, two"):
        read(engines="one,thre")


def test_short_hash_depends_on_settings_and_not_on_where_results_go() -> None:
    assert settings_text(read(out="a")) == settings_text(read(out="b", json="-"))
    assert settings_text(read(seed="1")) != settings_text(read(seed="2"))
