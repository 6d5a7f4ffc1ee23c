"""What prompts are made of, on numbers alone: nothing here has tokens."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engines.api import CbbenchError
from workloads.lengths import Component, Fixed, LengthPair, Shared, Uniform
from workloads.outlines import Outline, Part, Sessions, draw_outlines, plain_outlines, shared_share

ROOMY = 1_000_000
PLAIN = Component("plain", 1.0, Uniform(5, 9), Uniform(2, 4))
SHARING = Component("sharing", 1.0, Uniform(5, 9), Fixed(3), shared=Shared(3, Uniform(20, 40)))
TALK = Sessions(Uniform(2, 4), at_once=3)
KINDS = [([PLAIN], None), ([SHARING, PLAIN], None), ([PLAIN], TALK), ([SHARING], TALK)]


def as_tokens(outline: Outline) -> tuple[int, ...]:
    return tuple(1000 * part.number + i for part in outline.parts for i in range(part.length))


@pytest.mark.parametrize(("components", "sessions"), KINDS)
def test_fewer_requests_are_the_beginning_of_more(
    components: list[Component], sessions: Sessions | None
) -> None:
    many = draw_outlines(components, sessions, 40, 1, ROOMY)
    for count in (1, 2, 7, 39):
        assert draw_outlines(components, sessions, count, 1, ROOMY) == many[:count]
    assert draw_outlines(components, sessions, 40, 2, ROOMY) != many


@pytest.mark.parametrize(("components", "sessions"), KINDS)
def test_a_prompts_length_is_that_of_its_parts(
    components: list[Component], sessions: Sessions | None
) -> None:
    for context in (8, 30, 60, ROOMY):
        for outline in draw_outlines(components, sessions, 60, 0, context):
            pair = outline.lengths
            assert pair.prompt == sum(part.length for part in outline.parts)
            assert pair.prompt + pair.output <= context
            assert all(part.length >= 1 for part in outline.parts)


def test_prompts_without_parts_have_nothing_in_common() -> None:
    outlines = draw_outlines([PLAIN], None, 50, 0, ROOMY)
    assert [outline.parts[0].number for outline in outlines] == list(range(50))
    assert shared_share([as_tokens(outline) for outline in outlines]) == 0.0
    assert plain_outlines([o.lengths for o in outlines]) == outlines


def test_prompts_of_a_component_begin_with_one_of_its_shared_texts_equally_often() -> None:
    other = Component("other", 1.0, Fixed(6), Fixed(2), shared=Shared(2, Fixed(11)))
    outlines = draw_outlines([SHARING, PLAIN, other], None, 3000, 0, ROOMY)
    begins: dict[str, list[Part]] = {"sharing": [], "other": []}
    for outline in outlines:
        if outline.lengths.label == "plain":
            assert len(outline.parts) == 1
        else:
            begins[outline.lengths.label].append(outline.parts[0])
            assert 5 <= outline.parts[1].length <= 9
    for label, number in (("sharing", 3), ("other", 2)):
        found = set(begins[label])
        assert len(found) == len({part.number for part in found}) == number
        for part in found:
            assert begins[label].count(part) / len(begins[label]) == pytest.approx(
                1 / number, rel=0.1
            )
    assert not set(begins["sharing"]) & set(begins["other"])
    assert all(20 <= part.length <= 40 for part in begins["sharing"])


def test_no_two_texts_of_their_own_are_one() -> None:
    for components, sessions in KINDS:
        outlines = draw_outlines(components, sessions, 60, 0, ROOMY)
        own = [outline.parts[-1].number for outline in outlines]
        assert len(set(own)) == 60


def test_a_turns_prompt_is_the_one_before_its_answer_and_a_new_text() -> None:
    outlines = draw_outlines([SHARING], TALK, 100, 0, ROOMY)
    by_session: dict[str | None, list[Outline]] = {}
    for outline in outlines:
        by_session.setdefault(outline.session, []).append(outline)
    assert None not in by_session
    for turns in by_session.values():
        assert len(turns[0].parts) == 2
        for turn, following in pairwise(turns):
            *history, answer, _ = following.parts
            assert tuple(history) == turn.parts
            assert answer.length == turn.lengths.output
    ended = list(by_session.values())[: -TALK.at_once]
    assert {len(turns) for turns in ended} == {2, 3, 4}


def test_sessions_go_on_side_by_side_a_turn_of_each_in_order() -> None:
    outlines = draw_outlines([PLAIN], Sessions(Fixed(2), at_once=3), 9, 0, ROOMY)
    names = [outline.session for outline in outlines]
    assert names == [f"s{i:05d}" for i in (0, 1, 2, 0, 1, 2, 3, 4, 5)]


def test_a_session_ends_where_the_context_would_and_loses_nothing_that_was_said() -> None:
    fixed = Component("", 1.0, Fixed(10), Fixed(5))
    outlines = draw_outlines([fixed], Sessions(Fixed(9), at_once=1), 6, 0, 40)
    # 10 + 5, 25 + 5; the third needs 40 + 5 and keeps what was said before, of its own less
    assert [o.lengths.prompt for o in outlines] == [10, 25, 35, 10, 25, 35]
    assert [o.session for o in outlines] == ["s00000"] * 3 + ["s00001"] * 3
    assert outlines[2].lengths.prompt_clipped
    assert outlines[2].parts[:4] == (*outlines[1].parts, Part(3, 5))
    small = draw_outlines([fixed], Sessions(Fixed(9), at_once=1), 3, 0, 12)
    assert [(o.lengths.prompt, o.session) for o in small] == [
        (7, "s00000"),
        (7, "s00001"),
        (7, "s00002"),
    ]


def test_a_short_context_cuts_a_prompts_own_text_first_and_then_what_it_shares() -> None:
    component = Component("", 1.0, Fixed(10), Fixed(5), shared=Shared(1, Fixed(20)))
    for context, lengths in ((35, (20, 10)), (30, (20, 5)), (25, (19, 1)), (6, (1,))):
        (outline,) = draw_outlines([component], None, 1, 0, context)
        assert tuple(part.length for part in outline.parts) == lengths
        assert outline.lengths.prompt_clipped == (context < 35)


def test_every_so_many_requests_one_is_of_a_component() -> None:
    rare = Component("rare", 1.0, Fixed(100), Fixed(1), every=4)
    outlines = draw_outlines([rare, PLAIN], None, 12, 0, ROOMY)
    labels = [outline.lengths.label for outline in outlines]
    assert labels == (["plain"] * 3 + ["rare"]) * 3
    weights = [Component(label, 1.0, Fixed(1), Fixed(1)) for label in "ab"]
    drawn = draw_outlines([rare, *weights], None, 400, 0, ROOMY)
    others = [o.lengths.label for o in drawn if o.lengths.label != "rare"]
    assert len(others) == 300
    assert others.count("a") == pytest.approx(150, rel=0.15)


def test_components_that_all_want_their_own_requests_are_refused() -> None:
    rare = Component("rare", 1.0, Fixed(100), Fixed(1), every=4)
    with pytest.raises(CbbenchError, match="expected a component with a weight"):
        draw_outlines([rare], None, 12, 0, ROOMY)
    with pytest.raises(CbbenchError, match="expected every >= 2"):
        Component("always", 1.0, Fixed(1), Fixed(1), every=1)


def test_sessions_need_a_place() -> None:
    with pytest.raises(CbbenchError, match="0 sessions at once"):
        Sessions(Fixed(3), 0)


@pytest.mark.parametrize(
    ("prompts", "share"),
    [
        ([], 0.0),
        ([(1, 2, 3)], 0.0),
        ([(1, 2, 3), (4, 2, 3)], 0.0),
        ([(1, 2, 3), (1, 2, 3)], 0.5),
        ([(1, 2), (1, 2, 3, 4), (1, 2, 3, 4, 5, 6)], 6 / 12),
        ([(1, 2, 3), (9,), (1, 2, 4), (1, 5)], 3 / 9),
    ],
)
def test_what_prompts_have_in_common(prompts: list[tuple[int, ...]], share: float) -> None:
    assert shared_share(prompts) == pytest.approx(share)
    assert shared_share(prompts[::-1]) == pytest.approx(share)


@given(st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=6).map(tuple), min_size=1))
def test_what_prompts_have_in_common_is_what_a_tree_of_them_saves(
    prompts: list[tuple[int, ...]],
) -> None:
    nodes = {prompt[: i + 1] for prompt in prompts for i in range(len(prompt))}
    total = sum(map(len, prompts))
    assert shared_share(prompts) == pytest.approx(1 - len(nodes) / total)


def test_an_outline_keeps_its_label_and_what_was_clipped() -> None:
    (outline,) = plain_outlines([LengthPair(3, 4, "x", True, False)])
    assert outline == Outline(LengthPair(3, 4, "x", True, False), (Part(0, 3),))
