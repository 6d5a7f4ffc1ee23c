"""Stop strings in text that comes in pieces."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.server.stop_strings import StopFinder


def run(pieces, stops):
    """What is told, piece by piece, and whether a stop was found."""
    finder = StopFinder(stops)
    told = []
    for piece in pieces:
        told.append(finder.feed(piece))
        if finder.found:
            return told, True
    return [*told, finder.flush()], False


@pytest.mark.parametrize(
    ("pieces", "told"),
    [
        (["DEF", "G", "HI", "J"], ["", "", "", ""]),
        (["xDEFGHIJy"], ["x"]),
        (["xDEF", "GHIJy"], ["x", ""]),
        (["DEDEF", "GHIJ"], ["DE", ""]),
    ],
)
def test_nothing_of_the_stop_string_is_told(pieces, told):
    assert run(pieces, ["DEFGHIJ"]) == (told, True)


def test_a_beginning_that_comes_to_nothing_is_told():
    assert run(["DEF", "X", "DE"], ["DEFG"]) == (["", "DEFX", "", "DE"], False)


def test_the_stop_that_is_complete_first_wins():
    assert run(["ab cd ef"], ["ab cd ef", "cd"]) == (["ab "], True)
    assert run(list("ab cd ef"), ["ab cd ef", "cd"])[0] == [""] * 4 + ["ab "]


@settings(max_examples=500, deadline=None)
@given(
    st.text("ab", max_size=30),
    st.lists(st.text("ab", min_size=1, max_size=5), max_size=3),
    st.lists(st.integers(1, 29), max_size=6, unique=True),
)
def test_the_cut_of_the_pieces_changes_nothing(text, stops, borders):
    cuts = [0, *sorted(b for b in borders if b < len(text)), len(text)]
    pieces = [text[a:b] for a, b in pairwise(cuts)]
    told, found = run(pieces, stops)
    ends = [(text.find(stop) + len(stop), text.find(stop)) for stop in stops if stop in text]
    expected = text[: min(ends)[1]] if ends else text
    assert ("".join(told), found) == (expected, bool(ends))
