"""Admission and growth at the edge of the pool, with prefixes that are in it already."""

from __future__ import annotations

import pytest

from engines.api import Request
from engines.loop.kv.paged import PagedCache
from engines.loop.sequence import Sequence


def sequence(name, tokens, computed=0):
    made = Sequence(Request(name, tuple(tokens), 50), 50, arrival_index=0)
    made.num_computed = computed
    return made


def held(cache, name, tokens):
    """Admitted, computed to its last token, and recorded."""
    made = sequence(name, tokens)
    trial = cache.trial()
    hit = trial.admit(made)
    assert trial.grow(made, len(tokens) - hit)
    trial.commit()
    made.num_computed = len(tokens)
    cache.record(made)
    return made


@pytest.fixture
def cached():
    """Four blocks of two, all free; two of them still hold the tokens 1 to 4."""
    cache = PagedCache(num_blocks=4, block_size=2, prefix_caching=True)
    cache.free(held(cache, "first", [1, 2, 3, 4]))
    assert (cache.free_blocks, cache.cached_blocks) == (4, 2)
    return cache


@pytest.mark.parametrize(("reserve", "hit"), [(8, 4), (9, None)])
def test_a_free_block_is_not_counted_twice_as_a_hit_and_as_room(cached, reserve, hit):
    """Two blocks are hit; the two others have room for four positions more, not for eight."""
    trial = cached.trial()
    assert trial.admit(sequence("a", [1, 2, 3, 4, 5]), reserve=reserve) == hit
    assert trial.free_blocks == (0 if hit else 4)


def test_positions_that_were_hit_count_when_it_grows(cached):
    a = sequence("a", [1, 2, 3, 4, 5, 6, 7])
    trial = cached.trial()
    assert trial.admit(a) == 4
    assert trial.grow(a, 1)
    assert (len(cached.table("a")), trial.free_blocks) == (3, 1)
    assert trial.grow(a, 3)
    assert (len(cached.table("a")), trial.free_blocks) == (4, 0)
    assert not trial.grow(a, 5)


def test_who_comes_back_from_the_host_gets_room_for_what_it_had_computed():
    cache = PagedCache(num_blocks=4, block_size=2)
    a = sequence("a", [1, 2, 3, 4, 5], computed=4)
    trial = cache.trial()
    assert trial.resume(a)
    assert len(cache.table("a")) == 2


def test_a_resumed_sequence_may_reserve_beyond_what_it_had():
    cache = PagedCache(num_blocks=4, block_size=2)
    a = sequence("a", [1, 2, 3, 4, 5], computed=4)
    trial = cache.trial()
    assert not trial.resume(a, reserve=9)
    assert trial.free_blocks == trial.num_blocks == 4
    assert trial.resume(a, reserve=5)
    assert len(cache.table("a")) == 3


def test_an_admission_can_leave_blocks_free():
    cache = PagedCache(num_blocks=4, block_size=2)
    a = sequence("a", [1, 2, 3, 4])
    trial = cache.trial()
    assert trial.admit(a, reserve=4, keep_free=3) is None
    assert trial.free_blocks == 4
    assert trial.admit(a, reserve=4, keep_free=2) == 0


@pytest.mark.parametrize("prefix_caching", [False, True])
def test_what_a_release_would_free_is_known_before(prefix_caching):
    """A block that others hold too is not freed."""
    cache = PagedCache(num_blocks=8, block_size=2, prefix_caching=prefix_caching)
    held(cache, "a", [1, 2, 3, 4, 5])
    b = held(cache, "b", [1, 2, 3, 4, 6])
    trial = cache.trial()
    foretold = trial.frees(b)
    assert foretold == (1 if prefix_caching else 3)
    assert trial.release(b) == foretold


def test_what_it_gets_on_the_trial_is_not_what_its_going_frees():
    """All that `a` held before is held by `b` too, so that nothing is won by putting it out."""
    cache = PagedCache(num_blocks=8, block_size=2, prefix_caching=True)
    a = held(cache, "a", [1, 2])
    held(cache, "b", [1, 2, 3, 4, 5])
    a.tokens.append(3)
    trial = cache.trial()
    assert trial.grow(a, 1)
    assert trial.frees(a) == 0


def test_a_hit_is_foretold_and_taking_nothing_changes_nothing(cached):
    trial = cached.trial()
    a = sequence("a", [1, 2, 3, 4, 5])
    assert trial.hit(a) == 4
    assert trial.free_blocks == 4
    assert trial.admit(a) == 4
    assert PagedCache(num_blocks=4, block_size=2).trial().hit(a) == 0


@pytest.mark.parametrize(("prefix_caching", "trace"), [(True, True), (False, False)])
def test_blocks_that_were_taken_and_given_back_have_forgotten_their_prefixes(prefix_caching, trace):
    cache = PagedCache(num_blocks=4, block_size=2, prefix_caching=prefix_caching)
    cache.free(held(cache, "first", [1, 2, 3, 4]))
    a = held(cache, "a", [9, 9])
    trial = cache.trial()
    assert not trial.leaves_a_trace(a)
    assert trial.grow(a, 4)
    assert trial.leaves_a_trace(a) == trace
    trial.release(a)
    assert (trial.hit(sequence("b", [1, 2, 3, 4, 5])) < 4) == (trace or not prefix_caching)


@pytest.mark.parametrize("give_back", ["free", "release"])
def test_the_end_of_a_prefix_is_forgotten_before_its_beginning(give_back):
    """Else a short pool would keep the end, which nobody can hit without the beginning."""
    cache = PagedCache(num_blocks=3, block_size=2, prefix_caching=True)
    a = held(cache, "a", [1, 2, 3, 4, 5, 6])
    if give_back == "free":
        cache.free(a)
    else:
        trial = cache.trial()
        assert trial.release(a) == 3
        trial.commit()
    held(cache, "b", [9, 9])
    assert cache.trial().admit(sequence("c", [1, 2, 3, 4, 5, 6, 7])) == 4


def test_a_shared_block_is_free_only_when_nobody_holds_it(cached):
    a, b = held(cached, "a", [1, 2, 3, 9]), held(cached, "b", [1, 2, 3, 8])
    assert cached.table("a")[0] == cached.table("b")[0]
    free = cached.free_blocks
    cached.free(a)
    assert cached.free_blocks == free + 1
    cached.free(b)
    assert cached.free_blocks == 4


def test_a_reset_forgets_prefixes_but_not_while_somebody_holds_blocks(cached):
    a = held(cached, "a", [7, 7])
    with pytest.raises(AssertionError, match="1 sequences still hold blocks"):
        cached.reset()
    cached.free(a)
    cached.reset()
    assert cached.cached_blocks == 0
    assert cached.trial().admit(sequence("b", [1, 2, 3, 4, 5])) == 0
