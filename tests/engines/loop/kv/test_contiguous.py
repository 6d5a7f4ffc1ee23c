"""Regions: how long they are, that they never move, and what does not fit although it is free."""

from __future__ import annotations

import copy
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engines.api import CbbenchError, Request
from engines.loop.kv.contiguous import RESERVES, ContiguousCache
from engines.loop.kv.paged import PagedCache
from engines.loop.sequence import Sequence


def sequence(name, prompt, answer, computed=0):
    made = Sequence(Request(name, tuple(range(prompt)), answer), answer, arrival_index=0)
    made.num_computed = computed
    return made


def cache_of(num_blocks=16, block_size=4, reserve="exact", max_model_len=40):
    return ContiguousCache(num_blocks, block_size, reserve=reserve, max_model_len=max_model_len)


def admitted(cache, name, prompt, answer):
    made = sequence(name, prompt, answer)
    trial = cache.trial()
    assert trial.admit(made, reserve=prompt) == 0
    trial.commit()
    return made


@pytest.mark.parametrize(
    ("reserve", "prompt", "answer", "blocks"),
    [
        ("exact", 5, 4, 2),  # 8 positions: the last token is never fed back
        ("exact", 5, 5, 3),
        ("pow2", 5, 4, 2),
        ("pow2", 5, 5, 4),  # 9 positions, so 16
        ("pow2", 1, 1, 1),
        ("pow2", 30, 8, 10),  # 37 positions would be 64, but the context is 40
        ("max", 1, 1, 10),
        ("max", 30, 10, 10),
    ],
)
def test_a_region_is_as_long_as_its_rule_says(reserve, prompt, answer, blocks):
    cache = cache_of(reserve=reserve)
    admitted(cache, "a", prompt, answer)
    assert list(cache.table("a")) == list(range(blocks))
    assert cache.free_blocks == 16 - blocks


def test_a_policy_that_asks_for_more_gets_more():
    cache = cache_of()
    trial = cache.trial()
    assert trial.admit(sequence("a", 5, 4), reserve=9) == 0
    assert len(cache.table("a")) == 3


@pytest.mark.parametrize(("n", "lookahead", "fits"), [(5, 0, True), (8, 0, True), (9, 0, False)])
def test_a_region_holds_what_it_was_made_for_and_never_grows(n, lookahead, fits):
    cache = cache_of()
    a = admitted(cache, "a", 5, 4)
    free = cache.free_blocks
    assert cache.trial().grow(a, n, lookahead) is fits
    assert cache.free_blocks == free


def test_drafts_and_what_is_computed_count_against_the_region():
    cache = cache_of()
    a = admitted(cache, "a", 5, 4)
    a.num_computed = 6
    trial = cache.trial()
    assert trial.grow(a, 1, lookahead=1)
    assert not trial.grow(a, 1, lookahead=2)


def test_free_blocks_that_do_not_lie_together_admit_nobody():
    cache = cache_of(num_blocks=6)
    a, b, c = (admitted(cache, name, 5, 4) for name in "abc")
    cache.free(a)
    cache.free(c)
    trial = cache.trial()
    assert trial.free_blocks == 4
    assert trial.admit(sequence("d", 9, 4)) is None
    assert trial.room == "4 blocks free, at most 2 in a row"
    cache.free(b)
    assert cache.trial().admit(sequence("d", 9, 4)) == 0


@pytest.mark.parametrize(("keep_free", "answer"), [(3, 0), (4, None)])
def test_an_admission_leaves_as_many_blocks_free_as_it_is_told(keep_free, answer):
    cache = cache_of(num_blocks=5)
    assert cache.trial().admit(sequence("a", 5, 4), keep_free=keep_free) == answer


def test_a_release_would_free_the_region():
    cache = cache_of()
    a = admitted(cache, "a", 5, 5)
    trial = cache.trial()
    assert (trial.frees(a), trial.free_blocks, trial.num_blocks) == (3, 13, 16)
    assert trial.release(a) == 3
    assert trial.resume(a, reserve=17)
    assert len(cache.table("a")) == 5


def test_who_comes_back_from_the_host_gets_a_region_of_the_same_length_elsewhere():
    cache = cache_of(num_blocks=6)
    a = admitted(cache, "a", 5, 8)
    a.num_computed = 6
    trial = cache.trial()
    assert trial.release(a) == 3
    assert trial.admit(sequence("b", 2, 2)) == 0
    assert trial.resume(a)
    trial.commit()
    assert list(cache.table("a")) == [1, 2, 3]
    assert cache.trial().grow(a, 6)


def test_nobody_comes_back_where_no_gap_is_long_enough():
    cache = cache_of(num_blocks=4)
    a = admitted(cache, "a", 5, 8)
    trial = cache.trial()
    trial.release(a)
    assert trial.admit(sequence("b", 5, 4)) == 0
    assert not trial.resume(a)
    trial.discard()
    assert list(cache.table("a")) == [0, 1, 2]


def test_a_pool_smaller_than_one_context_is_refused_where_each_gets_one():
    with pytest.raises(CbbenchError, match=r"10 blocks of 4 .*context of 40.*the pool has 9"):
        cache_of(num_blocks=9, reserve="max")
    cache_of(num_blocks=9, reserve="pow2")


def test_a_cache_that_holds_nothing_is_refused():
    with pytest.raises(CbbenchError, match="both must be at least 1"):
        cache_of(num_blocks=0)


@pytest.mark.parametrize(
    ("reserve", "num_blocks", "block_size"),
    [
        *product(("pow2", "exact"), (5, 12, 64), (1, 3, 16)),
        *(("max", *pool) for pool in ((40, 1), (14, 3), (3, 16), (64, 16))),
    ],
)
def test_the_longest_request_fits_and_one_token_more_does_not(reserve, block_size, num_blocks):
    context = 40
    cache = cache_of(num_blocks, block_size, reserve, max_model_len=context)
    longest = min(context, cache.longest_request)
    assert cache.shortage(longest - 1) == ""
    made = sequence("a", longest - 1, 1)
    assert cache.trial().admit(made, reserve=longest - 1) == 0
    if longest < context:
        assert f"(reserve={reserve}), the pool has {num_blocks}" in cache.shortage(longest)
        assert cache.trial().admit(sequence("b", longest, 1)) is None


def test_the_longest_request_of_a_paged_pool_fills_it():
    cache = PagedCache(num_blocks=3, block_size=4)
    assert cache.longest_request == 13
    assert cache.shortage(12) == ""
    assert cache.shortage(13) == "need 4 blocks of 4, the pool has 3"


def test_what_is_reserved_is_held_or_lost_to_one_of_two_causes():
    cache = cache_of()
    a, b = admitted(cache, "a", 5, 10), admitted(cache, "b", 4, 1)  # 4 blocks and 1
    a.num_computed, b.num_computed = 5, 4
    use = cache.use([a, b], None)
    assert (use.reserved, use.held, use.inside_blocks, use.reservation) == (20, 9, 3, 8)
    assert use.fragmented == 0


@pytest.mark.parametrize(
    ("region", "fragmented"), [(1, 0), (2, 0), (3, 8), (4, 8), (5, 24), (None, 0)]
)
def test_free_positions_in_gaps_too_short_for_the_next_are_lost_to_fragmentation(
    region, fragmented
):
    """Gaps of two blocks and of four: 8 and 16 positions; `region` blocks for who waits first."""
    cache = cache_of(num_blocks=8)
    a, b, c = admitted(cache, "a", 5, 4), admitted(cache, "b", 5, 4), admitted(cache, "c", 9, 8)
    cache.free(a)
    cache.free(c)
    waiting = None if region is None else sequence("d", 4 * region, 1)
    assert cache.use([b], waiting).fragmented == fragmented


def test_a_second_trial_gives_up_the_first():
    cache = cache_of()
    first = cache.trial()
    first.admit(sequence("a", 8, 1))
    assert cache.trial().free_blocks == 16
    with pytest.raises(RuntimeError, match="given up"):
        first.admit(sequence("b", 8, 1))


def test_a_reset_while_somebody_holds_a_region_is_a_bug():
    cache = cache_of()
    a = admitted(cache, "a", 5, 4)
    with pytest.raises(AssertionError, match="1 sequences still hold regions"):
        cache.reset()
    cache.free(a)
    cache.reset()
    assert cache.gaps.stretches() == [(0, 16)]


operations = st.lists(
    st.tuples(
        st.sampled_from(["admit", "grow", "release", "resume", "free"]),
        st.integers(0, 5),
        st.integers(1, 9),
    ),
    max_size=25,
)


def carry_out(trial, sequences, cache, operations):
    """Whatever of the operations is possible; returns what each one answered."""
    answers = []
    for operation, index, n in operations:
        one = sequences[index]
        present = one.request_id in cache.tables
        if operation == "admit" and not present:
            answers.append(trial.admit(one, reserve=n))
        elif operation == "grow" and present:
            answers.append(trial.grow(one, n))
        elif operation == "release" and present:
            answers.append(trial.release(one))
        elif operation == "resume" and not present:
            answers.append(trial.resume(one))
    return answers


def state(cache):
    return dict(cache.tables), cache.gaps.stretches(), cache.gaps.num_free


@settings(max_examples=300, deadline=None)
@given(
    first=operations,
    second=operations,
    block_size=st.sampled_from([1, 2, 3, 5, 16]),
    reserve=st.sampled_from(RESERVES),
    num_blocks=st.integers(24, 40),
)
def test_a_trial_given_up_leaves_no_trace_and_committing_repeats_it(
    first, second, block_size, reserve, num_blocks
):
    cache = cache_of(num_blocks, block_size, reserve, max_model_len=24)
    sequences = [sequence(f"s{i}", 1 + 2 * i, 2 + i) for i in range(6)]
    trial = cache.trial()
    carry_out(trial, sequences, cache, first)
    trial.commit()
    before = copy.deepcopy(state(cache))
    trial = cache.trial()
    tried = carry_out(trial, sequences, cache, second)
    after = copy.deepcopy(state(cache))
    trial.discard()
    assert state(cache) == before
    trial = cache.trial()
    assert carry_out(trial, sequences, cache, second) == tried
    trial.commit()
    assert state(cache) == after
    for one in sequences:
        if one.request_id in cache.tables:
            cache.free(one)
    assert cache.gaps.stretches() == [(0, num_blocks)]
