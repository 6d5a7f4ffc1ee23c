from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engines.api import CbbenchError
from workloads.prompts import PromptDrawer


@given(st.integers(1, 64), st.integers(0, 100))
def test_prompt_has_exactly_its_length_and_no_special_id(length: int, number: int) -> None:
    prompt = PromptDrawer(0, 50, (0, 7, 49)).draw(number, length)
    assert len(prompt) == length
    assert set(prompt) <= set(range(50)) - {0, 7, 49}
    assert all(type(token) is int for token in prompt)


@pytest.mark.parametrize("length", [1, 2])
def test_shortest_prompts_have_only_drawn_tokens(length: int) -> None:
    assert len(PromptDrawer(0, 4096, (0, 1)).draw(0, length)) == length


def test_first_tokens_differ_as_long_as_the_vocabulary_lasts() -> None:
    drawer = PromptDrawer(0, 100, (3,))
    assert len({drawer.draw(i, 5)[0] for i in range(99)}) == 99


@given(st.integers(0, 2**32), st.lists(st.integers(0, 120), min_size=2, unique=True))
def test_no_two_prompts_begin_with_the_same_pair(seed: int, numbers: list[int]) -> None:
    drawer = PromptDrawer(seed, 13, (0, 1))
    assert drawer.capacity == 121
    assert len({drawer.draw(number, 2) for number in numbers}) == len(numbers)


def test_longer_prompt_of_a_number_begins_with_the_shorter() -> None:
    drawer = PromptDrawer(0, 4096, ())
    assert drawer.draw(7, 100)[:20] == drawer.draw(7, 20)


def test_tokens_are_spread_over_the_vocabulary() -> None:
    drawer = PromptDrawer(0, 64, ())
    assert len(set(drawer.draw(0, 1000))) == 64
    assert drawer.draw(0, 50)[2:] != drawer.draw(1, 50)[2:]


def test_vocabulary_of_special_ids_only_is_refused() -> None:
    with pytest.raises(CbbenchError, match="no prompt can be drawn"):
        PromptDrawer(0, 2, (0, 1))
