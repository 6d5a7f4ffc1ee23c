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
    LengthPair,
    LogNormal,
    Normal,
    Shared,
    Uniform,
)
from workloads.listing import LengthSummary
from workloads.loads import Load, RelativeLoad
from workloads.outlines import Outline, Sessions, draw_outlines
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


def outlines_of(name: str, count: int) -> list[Outline]:
    preset = load_preset(name)
    return draw_outlines(preset.components, preset.sessions, count, 0, 4096)


def lengths_of(name: str, count: int) -> list[LengthPair]:
    return [outline.lengths for outline in outlines_of(name, count)]


def test_all_presets_can_be_read_and_say_what_they_are() -> None:
    assert preset_names() == [
        "anyscale-2023",
        "chat-mix",
        "multi-turn",
        "saturate",
        "shared-prefix",
        "stall-probe",
        "uniform",
    ]
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
    pairs = lengths_of("chat-mix", 40_000)
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
    pairs = lengths_of("chat-mix", 10_000)
    tail = [pair for pair in pairs if pair.label == "retrieval"]
    rest = [pair for pair in pairs if pair.label == "chat"]
    assert len(tail) + len(rest) == len(pairs)
    assert min(pair.prompt for pair in tail) > max(pair.prompt for pair in rest)
    assert sum(p.output for p in tail) / len(tail) > 1.5 * sum(p.output for p in rest) / len(rest)


def test_saturate_is_played_all_at_once_only() -> None:
    assert [load.name for load in load_preset("saturate").default_loads] == ["all-at-once"]


def test_shared_prefix_has_few_beginnings_and_short_questions() -> None:
    outlines = outlines_of("shared-prefix", 5000)
    begins = {outline.parts[0] for outline in outlines}
    assert len(begins) == 4
    assert all(256 <= part.length <= 384 for part in begins)
    own = LengthSummary.of([outline.parts[1].length for outline in outlines])
    assert (own.p50, own.p95) == (pytest.approx(40, rel=0.05), pytest.approx(107, rel=0.05))
    answers = LengthSummary.of([outline.lengths.output for outline in outlines])
    assert (answers.p50, answers.p95) == (pytest.approx(24, rel=0.05), pytest.approx(55, rel=0.05))


def test_multi_turn_grows_by_turns() -> None:
    outlines = outlines_of("multi-turn", 5000)
    turns: dict[int, list[int]] = {}
    for outline in outlines:
        turns.setdefault((len(outline.parts) + 1) // 2, []).append(outline.lengths.prompt)
    assert sorted(turns) == [1, 2, 3, 4, 5, 6]
    means = [sum(turns[turn]) / len(turns[turn]) for turn in sorted(turns)]
    assert means[0] == pytest.approx(48 * math.exp(0.5**2 / 2), rel=0.05)
    for turn, mean in enumerate(means):
        assert mean == pytest.approx(means[0] * (turn + 1) + 27 * turn, rel=0.1)
    started, third, last = len(turns[1]), len(turns[3]), len(turns[6])
    assert started - third <= 8  # what the draw's end cut off
    assert last / started == pytest.approx(1 / 4, abs=0.05)


def test_stall_probe_has_a_long_prompt_now_and_then_that_fits_the_default_model() -> None:
    lengths = lengths_of("stall-probe", 20)
    assert [(p.prompt, p.output) for p in lengths if p.label == "document"] == [(4000, 32)] * 2
    assert not any(p.prompt_clipped or p.output_clipped for p in lengths)
    assert max(p.prompt for p in lengths if p.label == "chat") <= 32
    assert [load.name for load in load_preset("stall-probe").default_loads] == ["closed-loop-8"]


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


def test_shared_beginnings_sessions_and_rare_components_can_be_written(write: WriteFile) -> None:
    text = PLAIN.replace(
        "[[loads]]",
        '[[components]]\nlabel = "rare"\nevery = 5\n'
        'shared = { prefixes = 2, tokens = { kind = "fixed", value = 9 } }\n'
        'prompt = { kind = "fixed", value = 8 }\noutput = { kind = "fixed", value = 4 }\n'
        '[sessions]\nturns = { kind = "uniform", low = 2, high = 4 }\nat_once = 6\n[[loads]]',
    )
    preset = read_preset(write("mine.toml", text))
    assert preset.sessions == Sessions(Uniform(2, 4), 6)
    plain, rare = preset.components
    assert (plain.every, plain.shared) == (None, None)
    assert (rare.every, rare.shared) == (5, Shared(2, Fixed(9)))
    assert preset.composes_prompts
    assert not load_preset("stall-probe").composes_prompts


@pytest.mark.parametrize("priority", [-100, 0, 7, 100])
def test_a_component_may_have_a_priority(write: WriteFile, priority: int) -> None:
    text = PLAIN.replace("[[components]]", f"[[components]]\npriority = {priority}")
    assert read_preset(write("mine.toml", text)).components[0].priority == priority


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("[[components]]", "[[components]]\npriority = 101", "a priority from -100 to 100"),
        ("[[components]]", "[[components]]\npriority = 1.5", "1.5; expected a whole number"),
        ("[[components]]", "[[components]]\npriority = true", "True; expected a whole number"),
        ("[[components]]", "[[components]]\nevery = 3\nweight = 2", "`every` or a `weight`"),
        ("[[components]]", "[[components]]\nevery = 1", "expected every >= 2"),
        ("[[components]]", "[[components]]\nshared = { prefixes = 2 }", "no key 'tokens'"),
        ("[[components]]", "[[components]]\nshared = 3", "'shared' of component"),
        ("[[loads]]", "[sessions]\nat_once = 3\n[[loads]]", "sessions has no key 'turns'"),
        ("[[loads]]", "[sessions]\nturn = 3\n[[loads]]", "unknown key of sessions 'turn'"),
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
