"""Blocks, their reference counts, and the order in which free ones are taken.

Every change can be undone while a journal is open. Free blocks form a doubly linked list in
arrays: the head was given back longest ago and is taken first, so cached prefixes die in LRU order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from engines.api import CbbenchError
from engines.loop.sequence import SequenceView

Undo = tuple[Callable[..., None], tuple[int, ...]]


def blocks_for(num_positions: int, block_size: int) -> int:
    """Blocks that so many positions in a row fill or begin."""
    return -(-num_positions // block_size)


def held_and_begun(residents: Iterable[SequenceView], block_size: int) -> tuple[int, int]:
    """Positions that hold a token, and those that are left in the block of each one's last."""
    held = begun = 0
    for sequence in residents:
        held += sequence.num_computed
        begun += -sequence.num_computed % block_size
    return held, begun


def check_size(num_blocks: int, block_size: int) -> None:
    """Raises `CbbenchError` for a cache that could hold nothing."""
    if num_blocks < 1 or block_size < 1:
        raise CbbenchError(
            f"a cache of {num_blocks} blocks of {block_size} tokens holds nothing; "
            "both must be at least 1"
        )


class BlockPool:
    """`num_blocks` blocks, each free (count 0) or held by one or more sequences."""

    def __init__(self, num_blocks: int) -> None:
        self.num_blocks = num_blocks
        self.num_free = num_blocks
        self.num_marked_free = 0
        self.extra_holders = 0
        self.on_take: Callable[[int], None] | None = None
        self._journal: list[Undo] | None = None
        self._count: list[int] = [0] * num_blocks
        self._marked = bytearray(num_blocks)
        self._next: list[int] = [*range(1, num_blocks + 1), 0]  # the last entry is the sentinel
        self._previous: list[int] = [num_blocks, *range(num_blocks)]

    def take(self) -> int:
        """The free block that was given back longest ago. The caller has checked `num_free`."""
        block = self._next[self.num_blocks]
        self._unlink(block)
        self._count[block] = 1
        self._log(self._untake, block)
        if self.on_take is not None:
            self.on_take(block)
        return block

    def share(self, block: int) -> None:
        """One more holder; revives a free block."""
        if self._count[block] == 0:
            before = self._previous[block]
            self._unlink(block)
            self._log(self._relink, block, before)
        else:
            self.extra_holders += 1
        self._count[block] += 1
        self._log(self._unshare, block)

    def drop(self, block: int) -> None:
        """One holder fewer; without holders it is free, to be taken last."""
        assert self._count[block] > 0, f"block {block} is held by nobody"
        self._count[block] -= 1
        if self._count[block] == 0:
            self._link_behind(block, self._previous[self.num_blocks])
        else:
            self.extra_holders -= 1
        self._log(self._undrop, block)

    def mark(self, block: int, *, holds_prefix: bool) -> None:
        """Whether it holds something worth keeping while it is free; such free ones are counted."""
        if bool(self._marked[block]) == holds_prefix:
            return
        self._marked[block] = holds_prefix
        if self._count[block] == 0:
            self.num_marked_free += 1 if holds_prefix else -1

    def is_free(self, block: int) -> bool:
        return self._count[block] == 0

    def count(self, block: int) -> int:
        """How many hold it."""
        return self._count[block]

    def open_journal(self) -> None:
        """From now on changes can be undone."""
        self._journal = []

    def log(self, undo: Callable[..., None], *arguments: int) -> None:
        """Lets others write their own changes into the open journal."""
        self._log(undo, *arguments)

    def close_journal(self, *, undo: bool) -> None:
        """Ends the journal; with `undo` everything since `open_journal` is as it was."""
        journal, self._journal = self._journal or [], None
        if undo:
            for function, arguments in reversed(journal):
                function(*arguments)

    def _log(self, undo: Callable[..., None], *arguments: int) -> None:
        if self._journal is not None:
            self._journal.append((undo, arguments))

    def _untake(self, block: int) -> None:
        self._count[block] = 0
        self._link_behind(block, self.num_blocks)

    def _relink(self, block: int, before: int) -> None:
        self._link_behind(block, before)

    def _unshare(self, block: int) -> None:
        self._count[block] -= 1
        if self._count[block] > 0:
            self.extra_holders -= 1

    def _undrop(self, block: int) -> None:
        if self._count[block] == 0:
            self._unlink(block)
        else:
            self.extra_holders += 1
        self._count[block] += 1

    def _unlink(self, block: int) -> None:
        before, after = self._previous[block], self._next[block]
        self._next[before] = after
        self._previous[after] = before
        self.num_free -= 1
        self.num_marked_free -= self._marked[block]

    def _link_behind(self, block: int, before: int) -> None:
        after = self._next[before]
        self._next[before] = block
        self._previous[block] = before
        self._next[block] = after
        self._previous[after] = block
        self.num_free += 1
        self.num_marked_free += self._marked[block]
