from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import pytest

from engines.api import CbbenchError
from workloads.lengths import (
    Distribution,
    Exponential,
    Fixed,
    LogNormal,
    Normal,
    Uniform,
    draw_lengths,
)
from workloads.listing import LengthSummary
from workloads.loads import Load, RelativeLoad
from workloads.preset_files import _DISTRIBUTIONS, load_preset, preset_names, read_preset

WriteFile = Callable[[str, str], Path]
PLAIN = """
num_prompts = 3
[[components]]
prompt = { kind = "fixed", value = 8 }
output = { kind = "fixed", value = 4 }
[[loads]]
kind = "all-at-once"
"""


def test_all_presets_can_be_read_and_say_what_they_are() -> None:
    assert preset_names() == ["anyscale-2023", "chat-mix", "saturate", "uniform"]
    for name in preset_names():
        preset = load_preset(name)
        assert preset.name == name
        assert preset.description
        assert preset.source


def test_default_loads_are_all_at_once_then_poisson_relative_to_the_best() -> None:
    assert load_preset("chat-mix").default_loads == (
        Load("all-at-once", math.inf),
        RelativeLoad("poisson-70%", 0.7),
    )


def test_anyscale_preset_has_its_papers_lengths() -> None:
    (component,) = load_preset("anyscale-2023").components
    assert component.prompt == Fixed(512)
    assert component.output == Exponential(128.0)


def test_chat_mix_has_the_quantiles_of_the_scaled_azure_conversations() -> None:
    pairs = draw_lengths(load_preset("chat-mix").components, 40_000, 0, 4096)
    prompt = LengthSummary.of([pair.prompt for pair in pairs])
    output = LengthSummary.of([pair.output for pair in pairs])
    target = {
        "mean": (96.3, 17.6),
        "p50": (85, 10.8),
        "p95": (340, 37.6),
        "p99": (345, 50),
    }
    for statistic, (prompt_target, output_target) in target.items():
        assert getattr(prompt, statistic) == pytest.approx(prompt_target, rel=0.03), statistic
        assert getattr(output, statistic) == pytest.approx(output_target, rel=0.05), statistic
    assert output.max == 83


def test_chat_mix_retrieval_has_long_prompts_and_longer_answers() -> None:
    pairs = draw_lengths(load_preset("chat-mix").components, 10_000, 0, 4096)
    tail = [pair for pair in pairs if pair.label == "retrieval"]
    rest = [pair for pair in pairs if pair.label == "chat"]
    assert len(tail) + len(rest) == len(pairs)
    assert min(pair.prompt for pair in tail) > max(pair.prompt for pair in rest)
    assert sum(p.output for p in tail) / len(tail) > 1.5 * sum(p.output for p in rest) / len(rest)


def test_saturate_is_played_all_at_once_only() -> None:
    assert [load.name for load in load_preset("saturate").default_loads] == ["all-at-once"]


def test_unknown_preset_is_refused_with_the_nearest_and_the_list() -> None:
    with pytest.raises(CbbenchError, match="did you mean 'chat-mix'") as raised:
        load_preset("chatmix")
    assert "anyscale-2023" in str(raised.value)
    assert "trace:PATH" in str(raised.value)


def test_users_preset_file_is_read(write: WriteFile) -> None:
    text = PLAIN.replace("num_prompts = 3", "num_prompts = 3\nburstiness = inf") + (
        '[[loads]]\nkind = "rate"\nrequest_rate = 2.5\nmax_concurrency = 4\n'
        '[[loads]]\nkind = "relative"\nfraction_of_best = 0.5\n'
    )
    preset = read_preset(write("mine.toml", text))
    assert preset.name == "mine"
    assert preset.burstiness == math.inf
    assert [load.name for load in preset.default_loads] == [
        "all-at-once",
        "2.5 req/s, at most 4",
        "constant-50%",
    ]


def test_every_kind_of_lengths_can_be_written(write: WriteFile) -> None:
    kinds: dict[str, Distribution] = {
        '"fixed", value = 9': Fixed(9),
        '"normal", mean = 7, std = 1.5, min = 2, max = 90': Normal(7.0, 1.5, 2, 90),
        '"lognormal", median = 7, sigma = 0.5, max = 90': LogNormal(7.0, 0.5, 1, 90),
        '"uniform", low = 2, high = 5': Uniform(2, 5),
        '"exponential", mean = 7, min = 2, max = 90': Exponential(7.0, 2, 90),
    }
    for kind, expected in kinds.items():
        text = PLAIN.replace('"fixed", value = 8', kind)
        assert read_preset(write("kind.toml", text)).components[0].prompt == expected
    assert len(kinds) == len(_DISTRIBUTIONS)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("num_prompts", "num_promts", "unknown key of preset 'num_promts'; did you mean 'num_pr"),
        ("value = 8", "valeu = 8", "unknown key of prompt 'valeu'; did you mean 'value'"),
        ('"fixed", value = 8', '"fixd", value = 8', "unknown kind of lengths 'fixd'; did you mean"),
        ('"all-at-once"', '"all-at-onec"', "unknown kind of load 'all-at-onec'; did you mean"),
        ("value = 8", "value = 0", "'value' of prompt is 0; expected a whole number >= 1"),
        ("value = 8", "value = true", "'value' of prompt is True; expected a whole number"),
        (", value = 8", "", "prompt has no key 'value'"),
        ("num_prompts = 3", "num_prompts = '3'", "'num_prompts' of preset is '3'"),
        ("num_prompts = 3", "num_prompts = 3\nburstiness = 0", "give a number > 0"),
        ("num_prompts = 3", "num_prompts = 3\nburstiness = nan", "expected a number"),
        ("num_prompts = 3", "num_prompts = 3\ndescription = 5", "expected a text"),
        ('{ kind = "fixed", value = 8 }', "8", "expected a table"),
        ("[[loads]]", "[loads]", r"expected at least one \[\[loads\]\]"),
        ("num_prompts = 3", "num_prompts = ", "is not TOML"),
    ],
)
def test_mistake_in_a_preset_file_is_named(
    write: WriteFile, old: str, new: str, message: str
) -> None:
    assert old in PLAIN
    path = write("mine.toml", PLAIN.replace(old, new))
    with pytest.raises(CbbenchError, match=message) as raised:
        read_preset(path)
    assert str(path) in str(raised.value)


def test_missing_preset_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CbbenchError, match="cannot be read: No such file"):
        read_preset(tmp_path / "gone.toml")
