from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engines.api import GREEDY
from engines.loop.executors.api import Batch, PaddingRow, Row
from engines.loop.executors.packing import context_slots, pack


def row(tokens: list[int], start: int, table: list[int], sample: bool = True) -> Row:
    return Row("r", tokens, start, table, sample, GREEDY)


def test_mixed_rows_are_laid_out_one_after_the_other():
    rows = [row([7, 8, 9], 0, [5]), row([1], 4, [2, 0]), row([3, 4], 3, [1, 3], sample=False)]
    packed = pack(Batch(0, rows), block_size=4, scratch_block=6, max_positions=100)
    assert packed.input_ids.tolist() == [7, 8, 9, 1, 3, 4]
    assert packed.positions.tolist() == [0, 1, 2, 4, 3, 4]
    assert packed.slots.tolist() == [20, 21, 22, 0, 7, 12]
    assert packed.cu_seqlens.tolist() == [0, 3, 4, 6]
    assert packed.context_lens.tolist() == [3, 5, 5]
    assert packed.last_indices.tolist() == [2, 3]
    assert packed.sampled.tolist() == [0, 1]
    assert context_slots(packed, 1).tolist() == [8, 9, 10, 11, 0]
    assert context_slots(packed, 1, first=3).tolist() == [11, 0]


def test_padding_touches_the_scratch_block_only_and_keeps_its_length():
    batch = Batch(0, [row([1], 0, [0])], padding=[PaddingRow(1, 9), PaddingRow(3, 0)])
    packed = pack(batch, block_size=4, scratch_block=2, max_positions=6)
    assert packed.context_lens.tolist() == [1, 10, 3]
    assert set(packed.slots[1:] // 4) == {2}
    assert set(context_slots(packed, 1) // 4) == {2}
    assert packed.positions.tolist() == [0, 5, 0, 1, 2]  # 9 stops at the model's last position
    assert packed.sampled.tolist() == [0]


def test_a_table_longer_than_the_context_changes_nothing():
    short = pack(Batch(0, [row([4, 5], 2, [3, 1])]), 2, 9, 100)
    long = pack(Batch(0, [row([4, 5], 2, [3, 1, 8, 7])]), 2, 9, 100)
    assert np.array_equal(short.slots, long.slots)
    assert np.array_equal(context_slots(short, 0), context_slots(long, 0))


@pytest.mark.parametrize("table", [[3, 4, 5, 6, 7, 8], range(3, 9)])
def test_only_the_blocks_that_the_step_needs_are_packed(table):
    """Six positions with blocks of four: two blocks, whatever is reserved behind them."""
    packed = pack(Batch(0, [row([1, 2], 4, table), row([9], 0, [1])]), 4, 99, 64)
    assert packed.tables.tolist() == [3, 4, 1]
    assert packed.slots.tolist() == [16, 17, 4]
    ahead = row([1, 2], 4, table)
    ahead.lookahead = 3
    assert pack(Batch(0, [ahead]), 4, 99, 64).tables.tolist() == [3, 4, 5]


def test_a_real_row_keeps_its_positions_whatever_the_padding():
    batch = Batch(0, [row([1, 1], 7, [0, 1, 2])], padding=[PaddingRow(1, 9)])
    assert pack(batch, 4, 3, max_positions=6).positions.tolist() == [7, 8, 5]


def test_an_empty_batch_packs_to_nothing():
    packed = pack(Batch(0, []), 4, 2, 100)
    assert packed.num_tokens == packed.num_sequences == len(packed.sampled) == 0


@given(st.data())
def test_slots_follow_the_block_table_for_every_token(data):
    block_size = data.draw(st.integers(1, 5))
    shapes = data.draw(st.lists(st.tuples(st.integers(0, 12), st.integers(1, 6)), min_size=1))
    rows, free = [], iter(data.draw(st.permutations(range(18 * len(shapes)))))
    for start, count in shapes:
        table = [next(free) for _ in range(-(-(start + count) // block_size))]
        rows.append(row(list(range(count)), start, table, data.draw(st.booleans())))
    packed = pack(Batch(0, rows), block_size, 10_000, 100)
    expected = [
        one.block_table[p // block_size] * block_size + p % block_size
        for one in rows
        for p in range(one.start, one.start + len(one.tokens))
    ]
    assert packed.slots.tolist() == expected
    assert [packed.input_ids[i] for i in packed.last_indices] == [
        one.tokens[-1] for one in rows if one.sample
    ]
