from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engines.api import CbbenchError
from workloads.lengths import (
    Component,
    Distribution,
    Exponential,
    Fixed,
    LengthPair,
    LogNormal,
    Normal,
    Uniform,
    around,
    fit_context,
)
from workloads.outlines import draw_outlines

CONTEXT = 4096


def draw_lengths(
    components: Sequence[Component], count: int, seed: int, max_model_len: int
) -> list[LengthPair]:
    drawn = draw_outlines(components, None, count, seed, max_model_len)
    return [outline.lengths for outline in drawn]


def only(prompt: Distribution, output: Distribution | None = None) -> list[Component]:
    return [Component("", 1.0, prompt, output or Fixed(10))]


def prompts(distribution: Distribution, count: int = 1000, seed: int = 0) -> list[int]:
    return [pair.prompt for pair in draw_lengths(only(distribution), count, seed, CONTEXT)]


def test_range_ratio_0_gives_every_length_as_asked() -> None:
    assert set(prompts(around(100, 0.0))) == {100}


@pytest.mark.parametrize("ratio", [1.0, 2.0, -0.1, math.nan])
@pytest.mark.parametrize("length", [100, 1])
def test_range_ratio_outside_0_to_1_is_refused(length: int, ratio: float) -> None:
    with pytest.raises(CbbenchError, match="0 <= ratio < 1"):
        around(length, ratio)


def test_both_ends_of_a_range_are_drawn() -> None:
    assert around(100, 0.03) == Uniform(97, 103)
    assert set(prompts(Uniform(97, 103))) == set(range(97, 104))


@pytest.mark.parametrize(
    ("length", "ratio", "expected"),
    [
        (1, 0.999, Fixed(1)),
        (100, 0.07, Uniform(93, 107)),
        (100, 0.1, Uniform(90, 110)),
        (1000, 0.001, Uniform(999, 1001)),
        (3, 0.5, Uniform(2, 4)),
    ],
)
def test_range_holds_the_whole_numbers_within_it(
    length: int, ratio: float, expected: Distribution
) -> None:
    assert around(length, ratio) == expected


@given(st.integers(1, 10_000), st.floats(0, 1, exclude_max=True))
def test_range_never_reaches_below_one_token(length: int, ratio: float) -> None:
    drawn = around(length, ratio)
    if isinstance(drawn, Uniform):
        assert 1 <= drawn.low <= length <= drawn.high < 2 * length


def test_wide_normal_is_clipped_to_the_bounds_and_counted() -> None:
    pairs = draw_lengths(only(Normal(5, 50, maximum=40)), 1000, 0, CONTEXT)
    lengths = [pair.prompt for pair in pairs]
    assert min(lengths) == 1
    assert max(lengths) == 40
    clipped = sum(pair.prompt_clipped for pair in pairs)
    at_ends = sum(length in (1, 40) for length in lengths)
    assert 600 < clipped <= at_ends
    assert prompts(Normal(5, 50, maximum=40)) == lengths


def test_normal_without_deviation_is_its_mean() -> None:
    assert set(prompts(Normal(5, 0))) == {5}
    assert not any(p.prompt_clipped for p in draw_lengths(only(Normal(5, 0)), 10, 0, CONTEXT))


def test_distributions_have_their_means() -> None:
    assert np.mean(prompts(Exponential(128), 20_000)) == pytest.approx(128, rel=0.03)
    assert np.mean(prompts(Normal(300, 30), 20_000)) == pytest.approx(300, rel=0.01)
    assert np.median(prompts(LogNormal(100, 0.6), 20_000)) == pytest.approx(100, rel=0.03)
    logs = np.log(prompts(LogNormal(100, 0.6), 20_000))
    assert np.std(logs) == pytest.approx(0.6, rel=0.03)


def test_mixture_labels_each_request_by_its_component() -> None:
    mixture = [
        Component("chat", 3.0, Fixed(10), Fixed(20)),
        Component("retrieval", 1.0, Fixed(1000), Fixed(200)),
    ]
    pairs = draw_lengths(mixture, 4000, 0, CONTEXT)
    assert {(p.label, p.prompt, p.output) for p in pairs} == {
        ("chat", 10, 20),
        ("retrieval", 1000, 200),
    }
    assert Counter(p.label for p in pairs)["chat"] == pytest.approx(3000, abs=100)


def test_another_output_distribution_leaves_the_prompts() -> None:
    first = draw_lengths(only(Normal(300, 90), Fixed(50)), 50, 0, CONTEXT)
    second = draw_lengths(only(Normal(300, 90), Normal(40, 9)), 50, 0, CONTEXT)
    assert [p.prompt for p in first] == [p.prompt for p in second]


def test_prompts_and_answers_are_independent_within_a_component() -> None:
    pairs = draw_lengths(only(Exponential(100), Exponential(100)), 5000, 0, CONTEXT)
    drawn = np.array([(pair.prompt, pair.output) for pair in pairs])
    assert abs(np.corrcoef(drawn.T)[0, 1]) < 0.05


def test_lengths_are_rounded_to_the_nearest_token() -> None:
    assert set(prompts(Normal(2.5, 0))) == {3}
    assert set(prompts(Normal(2.49, 0))) == {2}
    assert set(prompts(LogNormal(0.2, 0))) == {1}


@given(st.integers(0, 30), st.integers(0, 30))
def test_fewer_lengths_are_the_beginning_of_more(few: int, extra: int) -> None:
    mixture = [
        Component("a", 1.0, Normal(50, 20), Exponential(9)),
        Component("b", 2.0, LogNormal(20, 1.0), Uniform(1, 50)),
    ]
    more = draw_lengths(mixture, few + extra, 3, CONTEXT)
    assert draw_lengths(mixture, few, 3, CONTEXT) == more[:few]


@given(st.integers(-5, 10_000), st.integers(-5, 10_000), st.integers(2, 5000))
def test_fitted_lengths_are_positive_and_fit_together(
    prompt: int, output: int, context: int
) -> None:
    fitted = fit_context(LengthPair(prompt, output), context)
    assert fitted.prompt >= 1
    assert fitted.output >= 1
    assert fitted.prompt + fitted.output <= context
    assert fitted.prompt_clipped == (fitted.prompt != prompt)
    assert fitted.output_clipped == (fitted.output != output)


def test_prompt_gives_way_to_the_answer() -> None:
    assert fit_context(LengthPair(14_050, 1000), 4096) == LengthPair(
        3096, 1000, prompt_clipped=True
    )


@pytest.mark.parametrize(
    "build",
    [
        lambda: Fixed(0),
        lambda: Uniform(0, 5),
        lambda: Uniform(6, 5),
        lambda: Normal(-1, 1),
        lambda: Normal(1, -1),
        lambda: Normal(1, math.nan),
        lambda: Normal(5, 1, minimum=9, maximum=8),
        lambda: LogNormal(0, 1),
        lambda: Exponential(math.inf),
        lambda: Component("x", 0.0, Fixed(1), Fixed(1)),
        lambda: around(0, 0.1),
    ],
)
def test_distribution_without_meaning_is_refused(build: object) -> None:
    assert callable(build)
    with pytest.raises(CbbenchError, match="expected"):
        build()
