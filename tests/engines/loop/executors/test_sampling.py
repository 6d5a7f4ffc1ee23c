from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from engines.api import GREEDY, Sampling  # noqa: E402
from engines.loop.executors.sampling import choose_tokens, gumbel_noise, uniforms  # noqa: E402

CPU = torch.device("cpu")


def draw_many(logits: torch.Tensor, sampling: Sampling, count: int) -> list[int]:
    rows = logits.expand(count, -1)
    return choose_tokens(rows, [sampling] * count, ["r"] * count, range(count)).tolist()


def test_greedy_takes_the_lowest_id_of_equal_logits():
    logits = torch.zeros(3, 50)
    logits[1, [30, 7, 44]] = 2.0
    logits[2] = -1.0
    assert choose_tokens(logits, [GREEDY] * 3, "abc", [0, 1, 2]).tolist() == [0, 7, 0]


def test_sampling_from_equal_logits_reaches_every_token():
    assert set(draw_many(torch.zeros(8), Sampling(temperature=1.0), 300)) == set(range(8))


def test_frequencies_follow_the_softmax():
    logits = torch.tensor([0.0, math.log(2.0), math.log(5.0)])
    counts = torch.bincount(torch.tensor(draw_many(logits, Sampling(1.0), 4000)), minlength=3)
    assert torch.allclose(counts / 4000, torch.tensor([1 / 8, 2 / 8, 5 / 8]), atol=0.03)


def test_temperature_sharpens():
    logits = torch.tensor([0.0, 1.0])
    cold = draw_many(logits, Sampling(temperature=0.1), 300)
    assert sum(cold) > 295
    assert 180 < sum(draw_many(logits, Sampling(temperature=1.0), 300)) < 260
    assert set(draw_many(logits, Sampling(temperature=1e-9), 50)) == {1}


def test_top_k_keeps_the_best_and_of_equals_the_lower_ids():
    logits = torch.tensor([1.0, 3.0, 1.0, 2.0])
    assert set(draw_many(logits, Sampling(1.0, top_k=2), 200)) == {1, 3}
    assert set(draw_many(logits, Sampling(5.0, top_k=3), 200)) == {0, 1, 3}
    assert set(draw_many(logits, Sampling(5.0, top_k=99), 200)) == {0, 1, 2, 3}


def test_top_k_of_many_equals_keeps_the_lowest_ids():
    assert set(draw_many(torch.zeros(1000), Sampling(1.0, top_k=3), 100)) == {0, 1, 2}


def test_top_p_stops_once_p_is_reached_exactly():
    assert set(draw_many(torch.zeros(2), Sampling(1.0, top_p=0.5), 100)) == {0}


def test_top_p_keeps_the_smallest_set_that_reaches_p():
    logits = torch.log(torch.tensor([0.5, 0.3, 0.15, 0.05]))
    assert set(draw_many(logits, Sampling(1.0, top_p=0.45), 200)) == {0}
    assert set(draw_many(logits, Sampling(1.0, top_p=0.55), 200)) == {0, 1}
    assert set(draw_many(logits, Sampling(1.0, top_p=0.9), 300)) == {0, 1, 2}
    assert set(draw_many(logits, Sampling(1.0, top_p=0.0), 50)) == {0}


def test_top_p_counts_what_top_k_left():
    logits = torch.log(torch.tensor([0.4, 0.35, 0.25]))
    # Of the best two the first holds 0.53, which alone reaches one half.
    assert set(draw_many(logits, Sampling(1.0, top_p=0.5, top_k=2), 200)) == {0}
    assert set(draw_many(logits, Sampling(1.0, top_p=0.5), 200)) == {0, 1}


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_a_row_draws_the_same_alone_and_in_any_batch(data):
    count = data.draw(st.integers(1, 6))
    generator = torch.Generator().manual_seed(data.draw(st.integers(0, 1000)))
    logits = torch.randn(count, 40, generator=generator)
    samplings = [
        Sampling(
            data.draw(st.sampled_from([0.0, 0.7, 2.0])), 0.9, data.draw(st.sampled_from([0, 5])), i
        )
        for i in range(count)
    ]
    ids, positions = [f"r{i}" for i in range(count)], list(range(10, 10 + count))
    together = choose_tokens(logits, samplings, ids, positions).tolist()
    for i in data.draw(st.permutations(range(count))):
        alone = choose_tokens(logits[i : i + 1], [samplings[i]], [ids[i]], [positions[i]])
        assert alone.tolist() == [together[i]]


@pytest.mark.parametrize("other", [(1, "r", 5), (0, "s", 5), (0, "r", 6)])
def test_seed_request_and_position_each_change_the_noise(other):
    logits = torch.zeros(1, 100_000)
    first = choose_tokens(logits, [Sampling(1.0, seed=0)], ["r"], [5])
    seed, request_id, position = other
    assert choose_tokens(logits, [Sampling(1.0, seed=seed)], [request_id], [position]) != first


def test_uniforms_are_those_of_splitmix64():
    # The first outputs of the published generator from state 0, and their top 53 bits.
    published = [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]
    expected = [((value >> 11) + 0.5) / 2**53 for value in published]
    assert uniforms(0, 3, CPU).tolist() == pytest.approx(expected, rel=1e-15)


def test_noise_is_finite_and_does_not_depend_on_how_much_is_asked_for():
    noise = gumbel_noise(2**64 - 1, 200_000, CPU)
    assert torch.isfinite(noise).all()
    assert abs(float(noise.mean()) - 0.5772) < 0.01
    assert torch.equal(gumbel_noise(2**64 - 1, 10, CPU), noise[:10])
