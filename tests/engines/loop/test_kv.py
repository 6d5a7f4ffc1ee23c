"""The memory: block arithmetic, prefixes, and trials that leave no trace or exactly their own."""

from __future__ import annotations

import copy

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engines.api import CbbenchError, Request
from engines.loop.kv.blocks import BlockPool
from engines.loop.kv.paged import PagedCache
from engines.loop.kv.prefix import PrefixIndex
from engines.loop.sequence import Sequence


def sequence(name, tokens, computed=0, answer=50):
    made = Sequence(Request(name, tuple(tokens), answer), answer, arrival_index=0)
    made.num_computed = computed
    return made


def held(cache, name, tokens, computed):
    """A sequence that has been admitted and has computed its tokens."""
    made = sequence(name, tokens)
    trial = cache.trial()
    assert trial.admit(made) is not None
    assert trial.grow(made, computed)
    trial.commit()
    made.num_computed = computed
    return made


def free_order(pool):
    order, block = [], pool._next[pool.num_blocks]
    while block != pool.num_blocks:
        order.append(block)
        block = pool._next[block]
    return order


@pytest.mark.parametrize(("num_blocks", "block_size"), [(0, 16), (4, 0), (-1, 4)])
def test_a_cache_that_holds_nothing_is_refused(num_blocks, block_size):
    with pytest.raises(CbbenchError, match="both must be at least 1"):
        PagedCache(num_blocks, block_size)


def test_a_new_block_is_taken_iff_the_positions_need_one():
    cache = PagedCache(num_blocks=2, block_size=4)
    a = held(cache, "a", range(9), computed=3)
    held(cache, "b", range(4), computed=4)
    assert cache.free_blocks == 0
    trial = cache.trial()
    assert trial.grow(a, 1)
    assert not trial.grow(a, 2)
    assert not trial.grow(a, 1, lookahead=1)


def test_a_failed_admission_or_growth_changes_nothing():
    cache = PagedCache(num_blocks=3, block_size=4)
    a = held(cache, "a", range(9), computed=5)
    before = free_order(cache.pool)
    trial = cache.trial()
    assert trial.admit(sequence("b", range(8)), reserve=8) is None
    assert not trial.grow(a, 8)
    trial.commit()
    assert free_order(cache.pool) == before
    assert list(cache.tables) == ["a"]


def test_a_second_trial_gives_up_the_first():
    cache = PagedCache(num_blocks=4, block_size=4)
    first = cache.trial()
    first.admit(sequence("a", range(8)), reserve=8)
    second = cache.trial()
    assert second.free_blocks == 4
    with pytest.raises(RuntimeError, match="given up"):
        first.admit(sequence("b", range(8)))


operations = st.lists(
    st.tuples(
        st.sampled_from(["admit", "grow", "release", "swap"]), st.integers(0, 5), st.integers(1, 9)
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
        elif operation == "swap" and not present:
            answers.append(trial.resume(one))
    return answers


def state(cache):
    known = cache.prefixes
    return (
        {name: list(table) for name, table in cache.tables.items()},
        {name: list(nodes) for name, nodes in cache.nodes.items()},
        free_order(cache.pool),
        list(cache.pool._count),
        (cache.pool.num_marked_free, cache.pool.extra_holders, dict(cache.reserved)),
        (dict(known._found), dict(known._key_of)) if known else None,
    )


@settings(max_examples=300, deadline=None)
@given(first=operations, second=operations, block_size=st.sampled_from([1, 2, 3, 5, 16]))
def test_a_trial_given_up_leaves_no_trace_and_committing_repeats_it(first, second, block_size):
    cache = PagedCache(num_blocks=6, block_size=block_size, prefix_caching=True)
    tokens = [[1, 2, 3, 4, 5, 6, 7, 8, i] for i in range(3)] + [[9] * 9] * 3
    sequences = [sequence(f"s{i}", tokens[i]) for i in range(6)]
    trial = cache.trial()
    carry_out(trial, sequences, cache, first)
    trial.commit()
    for one in sequences:
        if one.request_id in cache.tables:
            room = len(cache.tables[one.request_id]) * block_size
            one.num_computed = min(room, len(one.tokens))
            cache.record(one)
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
    cached = [b for b in free_order(cache.pool) if cache.prefixes.holds(b)]
    assert cache.cached_blocks == len(cached)
    assert cache.pool.extra_holders == sum(c - 1 for c in cache.pool._count if c)
    counted = len(free_order(cache.pool)) + sum(c > 0 for c in cache.pool._count)
    assert counted == 6


def test_a_prefix_hit_shares_whole_blocks_and_leaves_a_token_to_compute():
    """Case P3: 32 tokens twice, blocks of 16: one block is hit, not two."""
    cache = PagedCache(num_blocks=8, block_size=16, prefix_caching=True)
    a = held(cache, "a", range(32), computed=32)
    cache.record(a)
    trial = cache.trial()
    assert trial.admit(sequence("b", range(32))) == 16
    assert cache.table("b")[0] == cache.table("a")[0]
    assert trial.admit(sequence("c", range(33))) == 32


def test_only_recorded_positions_are_ever_hit():
    cache = PagedCache(num_blocks=8, block_size=4, prefix_caching=True)
    a = held(cache, "a", range(12), computed=7)
    cache.record(a)
    assert cache.trial().admit(sequence("b", range(12))) == 4


class FourBits(int):
    """A token whose hash has four bits; it equals itself alone."""

    def __hash__(self):
        return int(self) & 15


def test_a_prefix_hit_compares_tokens_not_hashes():
    index = PrefixIndex(block_size=2)
    chains = [[FourBits(16 * i), FourBits(16 * i + 32), FourBits(7)] for i in range(50)]
    for block, tokens in enumerate(chains):
        index.add(0, tuple(tokens[:2]), block)
    for block, tokens in enumerate(chains):
        assert [b for _, b in index.match(tokens)] == [block]
    assert index.match([FourBits(800), FourBits(832), FourBits(7)]) == []


def test_the_same_block_behind_another_prefix_is_not_hit():
    cache = PagedCache(num_blocks=8, block_size=2, prefix_caching=True)
    cache.record(held(cache, "a", [1, 2, 3, 4], computed=4))
    assert cache.trial().admit(sequence("b", [9, 9, 3, 4, 5])) == 0


def test_freed_prefixes_stay_until_their_blocks_are_taken_least_recently_used_first():
    cache = PagedCache(num_blocks=4, block_size=2, prefix_caching=True)
    for name, tokens in (("old", [1, 2]), ("new", [3, 4])):
        one = held(cache, name, tokens, computed=2)
        cache.record(one)
        cache.free(one)
    assert (cache.free_blocks, cache.cached_blocks) == (4, 2)
    held(cache, "c", range(10, 16), computed=6)  # two that never held anything, then the oldest
    trial = cache.trial()
    assert trial.admit(sequence("d", [1, 2, 0])) == 0
    assert trial.admit(sequence("e", [3, 4, 0])) == 2


def test_blocks_behind_rejected_drafts_are_given_back():
    cache = PagedCache(num_blocks=4, block_size=2)
    a = held(cache, "a", [1, 2, 3], computed=3)
    trial = cache.trial()
    assert trial.grow(a, 1, lookahead=4)
    trial.commit()
    assert cache.free_blocks == 0
    a.tokens.append(4)
    cache.trim(a)
    assert cache.free_blocks == 2


def test_what_was_reserved_survives_a_rejected_draft():
    cache = PagedCache(num_blocks=6, block_size=2)
    a = sequence("a", [1, 2, 3])
    trial = cache.trial()
    assert trial.admit(a, reserve=8) == 0
    trial.commit()
    cache.trim(a)
    assert cache.free_blocks == 2


def test_shared_positions_are_held_once():
    cache = PagedCache(num_blocks=8, block_size=4, prefix_caching=True)
    a = held(cache, "a", range(8), computed=8)
    cache.record(a)
    b = sequence("b", range(9))
    trial = cache.trial()
    b.num_computed = trial.admit(b)
    trial.commit()
    assert b.num_computed == 8
    use = cache.use([a, b], None)
    assert (use.reserved, use.held, use.inside_blocks, use.reservation) == (8, 8, 0, 0)


def test_giving_back_a_block_that_nobody_holds_is_a_bug():
    pool = BlockPool(2)
    with pytest.raises(AssertionError, match="held by nobody"):
        pool.drop(0)
