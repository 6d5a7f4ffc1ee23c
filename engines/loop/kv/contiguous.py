"""The contiguous allocator: one region of consecutive blocks a request, for as long as it may get.

What servers did before paging. A region is reserved whole at admission and neither moves nor grows,
so nobody is preempted for want of memory, much of it lies idle, and free blocks that do not lie
together help nobody. Its block tables are consecutive blocks, so every executor serves it as it is.

How long a region is (`reserve`): the model's context, whatever is asked (`max`, the way of
FasterTransformer), the next power of two of the positions that the request will come to hold
(`pow2`), or just those (`exact`, which only an oracle knows where answers may end early). After
the three variants of Orca in Kwon et al., SOSP 2023. No prefixes are shared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final, Literal, get_args

from engines.api import CbbenchError, RequestId
from engines.loop.kv.api import CacheUse
from engines.loop.kv.blocks import blocks_for, check_size, held_and_begun
from engines.loop.kv.gaps import Gaps
from engines.loop.sequence import SequenceView

Reserve = Literal["max", "pow2", "exact"]
RESERVES: Final[tuple[Reserve, ...]] = get_args(Reserve)


class ContiguousCache:
    """See `KVCache`. A region is never longer than `max_model_len` positions, in whole blocks."""

    def __init__(
        self, num_blocks: int, block_size: int, *, reserve: Reserve, max_model_len: int
    ) -> None:
        check_size(num_blocks, block_size)
        self.num_blocks = num_blocks
        self.block_size = block_size
        self.cached_blocks = 0
        self._reserve = reserve
        self._max_model_len = max_model_len
        self._start_empty()
        if reserve == "max" and self.blocks_for(max_model_len) > num_blocks:
            raise CbbenchError(
                f"reserve=max gives each request {self.blocks_for(max_model_len)} blocks of "
                f"{block_size} (the context of {max_model_len} tokens), but the pool has "
                f"{num_blocks}; give more kv_memory, a shorter --max-model-len, or reserve=pow2 "
                "or exact"
            )

    def _start_empty(self) -> None:
        self.gaps = Gaps(self.num_blocks)
        self.tables: dict[RequestId, range] = {}
        self._trial: ContiguousTrial | None = None

    @property
    def free_blocks(self) -> int:
        return self.gaps.num_free

    @property
    def longest_request(self) -> int:
        """The last token is never fed back, so it needs no position."""
        room = self.num_blocks * self.block_size
        if self._reserve == "exact":
            return room + 1
        if self.blocks_for(self._max_model_len) <= self.num_blocks:
            return self._max_model_len
        return (1 << room.bit_length() - 1) + 1  # the largest power of two that fits

    def blocks_for(self, num_positions: int) -> int:
        return blocks_for(num_positions, self.block_size)

    def shortage(self, num_positions: int) -> str:
        blocks = self._region(num_positions)
        if blocks <= self.num_blocks:
            return ""
        return (
            f"need a region of {blocks} blocks of {self.block_size} (reserve={self._reserve}), "
            f"the pool has {self.num_blocks}"
        )

    def region_of(self, sequence: SequenceView) -> int:
        """Blocks that are reserved for it at admission, and again when it comes back from the host.

        It comes to hold `max_len - 1` positions: the last token is never fed back.
        """
        return self._region(sequence.max_len - 1)

    def _region(self, num_positions: int) -> int:
        positions = num_positions
        if self._reserve == "max":
            positions = self._max_model_len
        elif self._reserve == "pow2":
            power = 1 << max(0, num_positions - 1).bit_length()
            positions = max(num_positions, min(power, self._max_model_len))
        return self.blocks_for(positions)

    def use(self, residents: Iterable[SequenceView], first: SequenceView | None) -> CacheUse:
        held, inside = held_and_begun(residents, self.block_size)
        reserved = (self.num_blocks - self.gaps.num_free) * self.block_size
        useless = 0
        if first is not None:
            useless = self.gaps.shorter_than(self.region_of(first))
        return CacheUse(reserved, held, inside, useless * self.block_size)

    def trial(self) -> ContiguousTrial:
        if self._trial is not None:
            self._trial.discard()
        self._trial = ContiguousTrial(self)
        return self._trial

    def end_trial(self) -> None:
        """For the open trial only."""
        self._trial = None

    def table(self, request_id: RequestId) -> Sequence[int]:
        return self.tables[request_id]

    def record(self, sequence: SequenceView) -> None:
        """There are no prefixes to serve."""

    def trim(self, sequence: SequenceView) -> None:
        """A region stays whole."""

    def free(self, sequence: SequenceView) -> None:
        region = self.tables.pop(sequence.request_id)
        self.gaps.give(region.start, len(region))

    def reset(self) -> None:
        assert not self.tables, f"{len(self.tables)} sequences still hold regions"
        self._start_empty()


class ContiguousTrial:
    """See `Trial`: the cache's own gaps and tables, and a list of what undoes each change."""

    def __init__(self, cache: ContiguousCache) -> None:
        self._cache = cache
        self._gaps = cache.gaps
        self._undo: list[Callable[[], object]] = []
        self._is_open = True

    @property
    def num_blocks(self) -> int:
        return self._cache.num_blocks

    @property
    def free_blocks(self) -> int:
        return self._gaps.num_free

    @property
    def room(self) -> str:
        return f"{self._gaps.num_free} blocks free, at most {self._gaps.longest} in a row"

    def blocks_for(self, positions: int) -> int:
        return self._cache.blocks_for(positions)

    def frees(self, sequence: SequenceView) -> int:
        return len(self._cache.tables[sequence.request_id])

    def hit(self, sequence: SequenceView) -> int:
        return 0

    def leaves_a_trace(self, sequence: SequenceView) -> bool:
        return False

    def admit(self, sequence: SequenceView, reserve: int = 0, *, keep_free: int = 0) -> int | None:
        self._check_open()
        return 0 if self._take(sequence, reserve, keep_free) else None

    def grow(self, sequence: SequenceView, n: int, lookahead: int = 0) -> bool:
        self._check_open()
        region = self._cache.tables[sequence.request_id]
        return sequence.num_computed + n + lookahead <= len(region) * self._cache.block_size

    def release(self, sequence: SequenceView) -> int:
        self._check_open()
        name = sequence.request_id
        region = self._cache.tables.pop(name)
        self._gaps.give(region.start, len(region))
        self._undo.append(lambda: self._put_back(name, region))
        return len(region)

    def resume(self, sequence: SequenceView, reserve: int = 0) -> bool:
        self._check_open()
        return self._take(sequence, reserve)

    def commit(self) -> None:
        self._check_open()
        self._is_open = False
        self._cache.end_trial()

    def discard(self) -> None:
        if self._is_open:
            self._is_open = False
            self._cache.end_trial()
            for undo in reversed(self._undo):
                undo()

    def _take(self, sequence: SequenceView, reserve: int, keep_free: int = 0) -> bool:
        name = sequence.request_id
        blocks = max(self._cache.region_of(sequence), self._cache.blocks_for(reserve))
        if blocks > self._gaps.num_free - keep_free:
            return False
        start = self._gaps.take(blocks)
        if start is None:
            return False
        self._cache.tables[name] = range(start, start + blocks)
        self._undo.append(lambda: self._forget(name))
        return True

    def _forget(self, name: RequestId) -> None:
        region = self._cache.tables.pop(name)
        self._gaps.give(region.start, len(region))

    def _put_back(self, name: RequestId, region: range) -> None:
        self._gaps.take_at(region.start, len(region))
        self._cache.tables[name] = region

    def _check_open(self) -> None:
        if not self._is_open:
            raise RuntimeError("this trial was given up or committed; ask for a new one")
