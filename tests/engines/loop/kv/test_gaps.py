"""Free stretches: cut from the shortest that holds them, grown together when they touch."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engines.loop.kv.gaps import Gaps


def with_holes():
    """Twenty blocks, free: 2 at place 0, 6 at place 4, 3 at place 12."""
    gaps = Gaps(20)
    for start, count in ((2, 2), (10, 2), (15, 5)):
        gaps.take_at(start, count)
    assert gaps.stretches() == [(0, 2), (4, 6), (12, 3)]
    return gaps


@pytest.mark.parametrize(
    ("count", "start"), [(1, 0), (2, 0), (3, 12), (4, 4), (6, 4), (7, None), (11, None)]
)
def test_the_shortest_gap_that_holds_it_is_cut(count, start):
    gaps = with_holes()
    assert gaps.take(count) == start
    assert gaps.num_free == 11 - (0 if start is None else count)


def test_of_gaps_of_one_length_the_first_is_cut():
    gaps = Gaps(7)
    gaps.take_at(3, 1)
    assert gaps.take(3) == 0


def test_enough_in_sum_is_not_enough_in_a_row():
    gaps = with_holes()
    assert (gaps.num_free, gaps.longest, gaps.take(7)) == (11, 6, None)


def test_what_lies_in_gaps_too_short_is_counted():
    gaps = with_holes()
    assert [gaps.shorter_than(n) for n in (2, 3, 4, 6, 7)] == [0, 2, 5, 5, 11]


@pytest.mark.parametrize(
    ("start", "count", "stretches"),
    [
        (2, 2, [(0, 10), (12, 3)]),  # touches both neighbours
        (2, 1, [(0, 3), (4, 6), (12, 3)]),
        (3, 1, [(0, 2), (3, 7), (12, 3)]),
        (16, 2, [(0, 2), (4, 6), (12, 3), (16, 2)]),
        (15, 5, [(0, 2), (4, 6), (12, 8)]),
    ],
)
def test_gaps_that_touch_become_one(start, count, stretches):
    gaps = with_holes()
    gaps.give(start, count)
    assert gaps.stretches() == stretches


@pytest.mark.parametrize(("start", "count"), [(0, 1), (1, 2), (9, 2), (3, 2), (13, 1)])
def test_giving_what_is_free_is_a_bug(start, count):
    with pytest.raises(AssertionError, match="free already"):
        with_holes().give(start, count)


@pytest.mark.parametrize(("start", "count"), [(2, 1), (8, 3), (19, 1), (14, 2)])
def test_taking_what_is_not_free_is_a_bug(start, count):
    with pytest.raises(AssertionError, match="not free"):
        with_holes().take_at(start, count)


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 9)), max_size=40))
def test_gaps_are_what_no_region_covers(moves):
    gaps, regions, size = Gaps(24), [], 24
    for is_take, n in moves:
        if is_take:
            before = gaps.longest
            start = gaps.take(n)
            assert (start is not None) == (before >= n)
            if start is not None:
                regions.append((start, n))
        elif regions:
            gaps.give(*regions.pop(n % len(regions)))
        covered = sorted(block for start, count in regions for block in range(start, start + count))
        assert len(covered) == len(set(covered)), "two regions overlap"
        free = [block for block in range(size) if block not in set(covered)]
        stretches = gaps.stretches()
        assert [b for start, count in stretches for b in range(start, start + count)] == free
        assert all(a + n < b for (a, n), (b, _) in pairwise(stretches))
        assert gaps.num_free == len(free)
