from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engines.api import CbbenchError
from workloads.randomness import Purpose, Stream, check_seed, permutation, uniforms

MANY = 20_000


def test_stream_gives_the_words_of_pcg64_as_fractions() -> None:
    sequence = np.random.SeedSequence(7, spawn_key=(int(Purpose.ARRIVALS), 0))
    expected = np.random.Generator(np.random.PCG64(sequence)).random(600)
    stream = Stream(7, Purpose.ARRIVALS)
    assert [stream.uniform() for _ in range(600)] == expected.tolist()
    assert uniforms(7, Purpose.ARRIVALS, 0, 600).tolist() == expected.tolist()


@given(st.integers(0, 2**64 - 1), st.integers(0, 50), st.integers(0, 50))
def test_fewer_uniforms_are_the_beginning_of_more(seed: int, few: int, extra: int) -> None:
    longer = uniforms(seed, Purpose.TOKENS, 3, few + extra)
    assert uniforms(seed, Purpose.TOKENS, 3, few).tolist() == longer[:few].tolist()


def test_streams_differ_by_seed_purpose_and_index() -> None:
    keys = [(s, p, i) for s in (0, 1, 2**32, 2**33) for p in Purpose for i in (0, 1, 2**32)]
    firsts = {uniforms(seed, purpose, index, 1)[0] for seed, purpose, index in keys}
    assert len(firsts) == len(keys)


@pytest.mark.parametrize("shape", [0.05, 0.25, 0.5, 1.0, 3.0, 1e6])
def test_gamma_has_mean_1_and_the_stated_variation(shape: float) -> None:
    stream = Stream(1, Purpose.ARRIVALS)
    draws = np.array([stream.gamma(shape) for _ in range(MANY)])
    assert draws.min() >= 0
    assert draws.mean() == pytest.approx(1.0, abs=6 / (shape * MANY) ** 0.5)
    assert draws.std() * shape**0.5 == pytest.approx(1.0, abs=0.12)


@pytest.mark.parametrize("shape", [0.25, 4.0])
def test_gamma_follows_its_distribution_function(shape: float) -> None:
    stats = pytest.importorskip("scipy.stats")
    stream = Stream(2, Purpose.ARRIVALS)
    draws = [stream.gamma(shape) for _ in range(MANY)]
    assert stats.kstest(draws, stats.gamma(shape, scale=1 / shape).cdf).pvalue > 0.001


def test_normal_and_exponential_follow_their_distribution_functions() -> None:
    stats = pytest.importorskip("scipy.stats")
    stream = Stream(3, Purpose.ARRIVALS)
    assert stats.kstest([stream.normal() for _ in range(MANY)], "norm").pvalue > 0.001
    assert stats.kstest([stream.exponential() for _ in range(MANY)], "expon").pvalue > 0.001


def test_permutation_holds_every_number_once() -> None:
    order = permutation(0, Purpose.FIRST_TOKENS, 1000)
    assert sorted(order.tolist()) == list(range(1000))
    assert order.tolist() != list(range(1000))


@pytest.mark.parametrize("seed", [-1, 2**64])
def test_seed_outside_64_bits_is_refused(seed: int) -> None:
    with pytest.raises(CbbenchError, match="whole number from 0"):
        check_seed(seed)
