"""The paged allocator: any free block serves anybody, so nothing is lost but a last block's rest.

Block arithmetic is all here: a sequence of c positions holds ceil(c / block_size) blocks.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from engines.api import RequestId
from engines.loop.kv.api import CacheUse
from engines.loop.kv.blocks import BlockPool, blocks_for, check_size, held_and_begun
from engines.loop.kv.prefix import ROOT, Key, PrefixIndex
from engines.loop.sequence import SequenceView


class PagedCache:
    """See `KVCache`. With `prefix_caching` full blocks outlive their sequence until taken."""

    def __init__(self, num_blocks: int, block_size: int, *, prefix_caching: bool = False) -> None:
        check_size(num_blocks, block_size)
        self.num_blocks = num_blocks
        self.block_size = block_size
        self._prefix_caching = prefix_caching
        self._start_empty()

    def _start_empty(self) -> None:
        self.pool = BlockPool(self.num_blocks)
        self.prefixes = PrefixIndex(self.block_size) if self._prefix_caching else None
        self.tables: dict[RequestId, list[int]] = {}
        self.nodes: dict[RequestId, list[int]] = {}
        self.reserved: dict[RequestId, int] = {}  # blocks, at admission
        self._trial: PagedTrial | None = None
        if self.prefixes is not None:
            self.pool.on_take = self._evict

    @property
    def free_blocks(self) -> int:
        return self.pool.num_free

    @property
    def cached_blocks(self) -> int:
        return self.pool.num_marked_free

    def use(self, residents: Iterable[SequenceView], first: SequenceView | None) -> CacheUse:
        """Only full blocks are shared, so each further holder repeats a whole block.

        Any free block serves anybody, so none is lost to fragmentation.
        """
        held, inside = held_and_begun(residents, self.block_size)
        held -= self.pool.extra_holders * self.block_size
        reserved = (self.num_blocks - self.pool.num_free) * self.block_size
        return CacheUse(reserved, held, inside, fragmented=0)

    def trial(self) -> PagedTrial:
        if self._trial is not None:
            self._trial.discard()
        self._trial = PagedTrial(self)
        return self._trial

    def end_trial(self, *, undo: bool) -> None:
        """For the open trial only."""
        self._trial = None
        self.pool.close_journal(undo=undo)

    def table(self, request_id: RequestId) -> Sequence[int]:
        return self.tables[request_id]

    @property
    def longest_request(self) -> int:
        """The last token is never fed back, so it needs no position."""
        return self.num_blocks * self.block_size + 1

    def blocks_for(self, num_positions: int) -> int:
        return blocks_for(num_positions, self.block_size)

    def shortage(self, num_positions: int) -> str:
        blocks = self.blocks_for(num_positions)
        if blocks <= self.num_blocks:
            return ""
        return f"need {blocks} blocks of {self.block_size}, the pool has {self.num_blocks}"

    def record(self, sequence: SequenceView) -> None:
        if self.prefixes is None:
            return
        size = self.block_size
        table = self.tables[sequence.request_id]
        nodes = self.nodes[sequence.request_id]
        for index in range(len(nodes), sequence.num_computed // size):
            tokens = tuple(sequence.tokens[index * size : (index + 1) * size])
            nodes.append(self.prefixes.add(nodes[-1] if nodes else ROOT, tokens, table[index]))
            if self.prefixes.holds(table[index]):
                self.pool.mark(table[index], holds_prefix=True)

    def trim(self, sequence: SequenceView) -> None:
        table = self.tables[sequence.request_id]
        keep = max(self.blocks_for(sequence.num_known), self.reserved.get(sequence.request_id, 0))
        for _ in range(len(table) - keep):
            self.pool.drop(table.pop())

    def free(self, sequence: SequenceView) -> None:
        self.nodes.pop(sequence.request_id)
        self.reserved.pop(sequence.request_id, None)
        for block in reversed(self.tables.pop(sequence.request_id)):
            self.pool.drop(block)

    def reset(self) -> None:
        assert not self.tables, f"{len(self.tables)} sequences still hold blocks"
        self._start_empty()

    def _evict(self, block: int) -> None:
        assert self.prefixes is not None
        forgotten = self.prefixes.forget(block)
        if forgotten is not None:
            key, node = forgotten
            self.pool.mark(block, holds_prefix=False)
            self.pool.log(lambda: self._restore(block, key, node))

    def _restore(self, block: int, key: Key, node: int) -> None:
        assert self.prefixes is not None
        self.prefixes.restore(block, key, node)
        self.pool.mark(block, holds_prefix=True)


class PagedTrial:
    """See `Trial`: the cache's own methods with a journal open."""

    def __init__(self, cache: PagedCache) -> None:
        self._cache = cache
        self._pool = cache.pool
        self._hits: dict[RequestId, int] = {}
        self._grown: dict[RequestId, int] = {}  # blocks
        self._is_open = True
        cache.pool.open_journal()

    @property
    def num_blocks(self) -> int:
        return self._pool.num_blocks

    @property
    def free_blocks(self) -> int:
        return self._pool.num_free

    @property
    def room(self) -> str:
        return f"{self._pool.num_free} blocks free"

    def blocks_for(self, positions: int) -> int:
        return self._cache.blocks_for(positions)

    def frees(self, sequence: SequenceView) -> int:
        name = sequence.request_id
        table = self._cache.tables[name]
        held = len(table) - self._grown.get(name, 0)
        if not self._pool.extra_holders:
            return held
        return sum(1 for block in table[:held] if self._pool.count(block) == 1)

    def hit(self, sequence: SequenceView) -> int:
        prefixes = self._cache.prefixes
        return (
            len(prefixes.match(sequence.tokens)) * self._cache.block_size
            if prefixes is not None
            else 0
        )

    def leaves_a_trace(self, sequence: SequenceView) -> bool:
        return self._cache.prefixes is not None and sequence.request_id in self._grown

    def admit(self, sequence: SequenceView, reserve: int = 0, *, keep_free: int = 0) -> int | None:
        self._check_open()
        cache, pool, name = self._cache, self._pool, sequence.request_id
        chain = cache.prefixes.match(sequence.tokens) if cache.prefixes is not None else []
        revived = sum(1 for _, block in chain if pool.is_free(block))
        fresh = max(0, cache.blocks_for(reserve) - len(chain))
        if fresh > pool.num_free - revived - keep_free:
            return None
        for _, block in chain:
            pool.share(block)
        cache.tables[name] = [block for _, block in chain] + [pool.take() for _ in range(fresh)]
        cache.nodes[name] = [node for node, _ in chain]
        cache.reserved[name] = cache.blocks_for(reserve)
        pool.log(lambda: self._forget(name))
        self._hits[name] = len(chain) * cache.block_size
        return self._hits[name]

    def grow(self, sequence: SequenceView, n: int, lookahead: int = 0) -> bool:
        self._check_open()
        name = sequence.request_id
        table = self._cache.tables[name]
        computed = self._hits.get(name) if self._hits else None
        if computed is None:
            computed = sequence.num_computed
        need = -(-(computed + n + lookahead) // self._cache.block_size) - len(table)
        if need <= 0:
            return True
        if not self._extend(table, need):
            return False
        self._grown[name] = self._grown.get(name, 0) + need
        return True

    def release(self, sequence: SequenceView) -> int:
        self._check_open()
        cache, pool, name = self._cache, self._pool, sequence.request_id
        before = pool.num_free
        table, nodes = cache.tables.pop(name), cache.nodes.pop(name)
        reserved = cache.reserved.pop(name, None)
        pool.log(lambda: self._put_back(name, table, nodes, reserved))
        for block in reversed(table):
            pool.drop(block)
        return pool.num_free - before

    def resume(self, sequence: SequenceView, reserve: int = 0) -> bool:
        self._check_open()
        name = sequence.request_id
        table: list[int] = []
        if not self._extend(table, self._cache.blocks_for(max(sequence.num_computed, reserve))):
            return False
        self._cache.tables[name], self._cache.nodes[name] = table, []
        self._cache.reserved[name] = self._cache.blocks_for(reserve)
        self._pool.log(lambda: self._forget(name))
        return True

    def commit(self) -> None:
        self._check_open()
        self._is_open = False
        self._cache.end_trial(undo=False)

    def discard(self) -> None:
        if self._is_open:
            self._is_open = False
            self._cache.end_trial(undo=True)

    def _extend(self, table: list[int], count: int) -> bool:
        if count > self._pool.num_free:
            return False
        for _ in range(count):
            table.append(self._pool.take())
        self._pool.log(lambda: self._shorten(table, count))
        return True

    def _shorten(self, table: list[int], count: int) -> None:
        del table[len(table) - count :]

    def _forget(self, name: RequestId) -> None:
        del self._cache.tables[name], self._cache.nodes[name]
        self._cache.reserved.pop(name, None)

    def _put_back(
        self, name: RequestId, table: list[int], nodes: list[int], reserved: int | None
    ) -> None:
        self._cache.tables[name], self._cache.nodes[name] = table, nodes
        if reserved is not None:
            self._cache.reserved[name] = reserved

    def _check_open(self) -> None:
        if not self._is_open:
            raise RuntimeError("this trial was given up or committed; ask for a new one")
