"""Short and long, on both sides of the median."""

from __future__ import annotations

import pytest

from harness.metrics.classes import request_classes


def classes_of(player, *lengths: tuple[int, int | None]) -> list[str]:
    """`lengths` are (prompt, asked output); a class depends on nothing that an engine did."""
    requests = [player.request(f"r{i}", prompt=p, out=n) for i, (p, n) in enumerate(lengths)]
    return request_classes(player.cell(requests, []).requests)


def test_the_median_itself_is_short(player):
    assert classes_of(player, (1, 1), (2, 1), (3, 1)) == ["short", "short", "long"]


def test_prompt_and_asked_output_count_together(player):
    assert classes_of(player, (9, 1), (1, 2), (1, 40), (8, 1)) == ["long", "short", "long", "short"]


@pytest.mark.parametrize("lengths", [[(4, 4)] * 3, [(4, 4), (5, 3), (7, 1)]])
def test_equal_lengths_are_one_class(player, lengths):
    assert classes_of(player, *lengths) == ["all"] * 3


def test_an_answer_without_a_bound_counts_its_prompt(player):
    assert classes_of(player, (4, None), (6, None)) == ["short", "long"]
