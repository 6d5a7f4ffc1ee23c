"""From a batch of rows to flat arrays: what one forward pass and paged attention need.

Runs once a step on the critical path, so it is a handful of numpy calls and makes no object per
token. Knows neither torch nor a device; it moves nothing and decides nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from engines.loop.executors.api import Batch, Row

PADDING_TOKEN = 0
Ints = NDArray[np.int64]
SmallInts = NDArray[np.int32]
NOTHING: Ints = np.empty(0, dtype=np.int64)


@dataclass(frozen=True, slots=True)
class PackedBatch:
    """One step as one row of T tokens in S sequences: the batch's rows, then its padding.

    `slots[t]` is where token t's keys and values go. Sequence s owns tokens `cu_seqlens[s] ..
    cu_seqlens[s + 1] - 1`, attends to `context_lens[s]` positions including its own new ones, and
    its block table is `tables[table_offsets[s]:table_offsets[s + 1]]`. `last_indices[i]` is the
    last token of `batch.rows[sampled[i]]`, in the order of the rows.
    """

    block_size: int
    input_ids: Ints  # [T]
    positions: Ints  # [T]
    slots: Ints  # [T]
    cu_seqlens: SmallInts  # [S + 1]
    context_lens: SmallInts  # [S]
    tables: SmallInts  # flat
    table_offsets: SmallInts  # [S + 1]
    last_indices: Ints  # [N]
    sampled: Ints  # [N]

    @property
    def num_tokens(self) -> int:
        return len(self.input_ids)

    @property
    def num_sequences(self) -> int:
        return len(self.context_lens)

    @property
    def query_lens(self) -> SmallInts:
        """[S] new tokens of each sequence."""
        return np.diff(self.cu_seqlens)


def pack(batch: Batch, block_size: int, scratch_block: int, max_positions: int) -> PackedBatch:
    """Packs `batch`; the block tables are read here, as far as the step needs them, and not kept.

    A padding sequence reads and writes `scratch_block` only: its table repeats that block to the
    length of its context, so that its compute is real. Its positions stop at `max_positions - 1`,
    beyond which a model has no embedding.
    """
    rows, padding = batch.rows, batch.padding
    query_lens = [len(row.tokens) for row in rows] + [pad.num_tokens for pad in padding]
    starts = [row.start for row in rows] + [pad.context for pad in padding]
    pad_blocks = [-(-(pad.context + pad.num_tokens) // block_size) for pad in padding]
    row_tables = [_needed(row, block_size) for row in rows]
    table_lens = [len(table) for table in row_tables] + pad_blocks

    cu_seqlens = _offsets(query_lens)
    table_offsets = _offsets(table_lens)
    num_real = int(cu_seqlens[len(rows)])
    num_table_real = int(table_offsets[len(rows)])

    input_ids = np.full(int(cu_seqlens[-1]), PADDING_TOKEN, dtype=np.int64)
    input_ids[:num_real] = _flat([row.tokens for row in rows], num_real)
    tables = np.full(int(table_offsets[-1]), scratch_block, dtype=np.int32)
    tables[:num_table_real] = _flat(row_tables, num_table_real)

    start_of = np.asarray(starts, dtype=np.int64)
    counts = np.asarray(query_lens, dtype=np.int64)
    positions = _positions(start_of, counts, cu_seqlens)
    slots = _slots(positions, counts, tables, table_offsets, block_size)
    np.minimum(positions[num_real:], max_positions - 1, out=positions[num_real:])

    sampled = np.asarray([i for i, row in enumerate(rows) if row.sample], dtype=np.int64)
    return PackedBatch(
        block_size=block_size,
        input_ids=input_ids,
        positions=positions,
        slots=slots,
        cu_seqlens=cu_seqlens,
        context_lens=(start_of + counts).astype(np.int32),
        tables=tables,
        table_offsets=table_offsets,
        last_indices=cu_seqlens[sampled + 1].astype(np.int64) - 1,
        sampled=sampled,
    )


def _positions(start_of: Ints, counts: Ints, cu_seqlens: SmallInts) -> Ints:
    """Of token t: the start of its sequence + (t - first token of its sequence)."""
    return np.arange(int(cu_seqlens[-1])) + np.repeat(start_of - cu_seqlens[:-1], counts)


def _slots(
    positions: Ints, counts: Ints, tables: SmallInts, table_offsets: SmallInts, block_size: int
) -> Ints:
    """Where each token's keys and values go, by its own sequence's part of the flat tables."""
    entries = np.repeat(table_offsets[:-1].astype(np.int64), counts) + positions // block_size
    return table_slots(tables, entries * block_size + positions % block_size, block_size)


def context_slots(packed: PackedBatch, sequence: int, first: int = 0) -> Ints:
    """Where the keys of positions `first .. context_len - 1` of one sequence live, in order."""
    positions = np.arange(first, int(packed.context_lens[sequence]))
    return table_slots(
        packed.tables[packed.table_offsets[sequence] : packed.table_offsets[sequence + 1]],
        positions,
        packed.block_size,
    )


def table_slots(table: SmallInts, positions: Ints, block_size: int) -> Ints:
    """The slots of `positions` under one block table."""
    return table[positions // block_size].astype(np.int64) * block_size + positions % block_size


def _needed(row: Row, block_size: int) -> Sequence[int]:
    """The row's table without blocks that are reserved for later steps: there may be many."""
    positions = row.start + len(row.tokens) + row.lookahead
    count = -(-positions // block_size)
    return row.block_table if len(row.block_table) <= count else row.block_table[:count]


def _offsets(lengths: list[int]) -> SmallInts:
    offsets = np.zeros(len(lengths) + 1, dtype=np.int32)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


def _flat(parts: list[Sequence[int]], count: int) -> Ints:
    return np.fromiter(chain.from_iterable(parts), dtype=np.int64, count=count)
