"""The memory's contract: a cache that holds blocks, and trials that try changes on it.

A trial is the cache itself with a way back: the same methods change the same blocks, and
`discard` undoes them in reverse. So what a policy tried and what the loop commits cannot differ.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from engines.api import RequestId
from engines.loop.sequence import SequenceView


@dataclass(frozen=True, slots=True)
class CacheUse:
    """What the pool's positions are for at one instant.

    Of the `reserved` ones `held` keep a token and `inside_blocks` are the rest of blocks that are
    begun. The `fragmented` ones are free, in gaps too short for the first request that waits.
    """

    reserved: int
    held: int
    inside_blocks: int
    fragmented: int

    @property
    def reservation(self) -> int:
        """Reserved in blocks that nobody has begun."""
        return self.reserved - self.held - self.inside_blocks


class Trial(Protocol):
    """Changes that are not yet made. At most one trial of a cache is open at a time."""

    @property
    def num_blocks(self) -> int: ...
    @property
    def free_blocks(self) -> int: ...

    @property
    def room(self) -> str:
        """How much is free, in words, for whoever is told that it is not enough."""
        ...

    def blocks_for(self, positions: int) -> int:
        """Blocks that so many positions of one sequence take up."""
        ...

    def frees(self, sequence: SequenceView) -> int:
        """By how many blocks giving up what it held before this trial would raise the free ones.

        Changes nothing.
        """
        ...

    def hit(self, sequence: SequenceView) -> int:
        """How many leading tokens of a waiting sequence `admit` would find in the cache now."""
        ...

    def leaves_a_trace(self, sequence: SequenceView) -> bool:
        """Whether after its `release` this trial is not what it would be had it got nothing.

        So where blocks that it was given here held prefixes, which are forgotten.
        """
        ...

    def admit(self, sequence: SequenceView, reserve: int = 0, *, keep_free: int = 0) -> int | None:
        """Takes a waiting sequence in, with room for `reserve` positions at least.

        Returns how many of its leading tokens are in the cache already (always fewer than it
        has), or `None`, with nothing changed, when fewer than `keep_free` blocks would be left.
        """
        ...

    def grow(self, sequence: SequenceView, n: int, lookahead: int = 0) -> bool:
        """Makes room for computed + n + lookahead positions; `False`: no room, nothing changed."""
        ...

    def release(self, sequence: SequenceView) -> int:
        """Gives its blocks back; returns by how many the free blocks rose."""
        ...

    def resume(self, sequence: SequenceView, reserve: int = 0) -> bool:
        """Room for what a swapped-out sequence had computed, and for `reserve` positions in all.

        `False`: there is none, and nothing changed.
        """
        ...

    def commit(self) -> None: ...

    def discard(self) -> None: ...


class KVCache(Protocol):
    """Who holds which blocks."""

    @property
    def num_blocks(self) -> int: ...
    @property
    def block_size(self) -> int: ...
    @property
    def free_blocks(self) -> int:
        """Blocks that can be taken, those with cached prefixes among them."""
        ...

    @property
    def cached_blocks(self) -> int:
        """Free blocks that still hold a prefix somebody may hit."""
        ...

    @property
    def longest_request(self) -> int:
        """Prompt + answer of the longest request that could run alone, in tokens."""
        ...

    def blocks_for(self, num_positions: int) -> int:
        """Blocks of a table that so many positions of one request fill or begin."""
        ...

    def shortage(self, num_positions: int) -> str:
        """Why a request that comes to hold so many positions could never run, not even alone.

        With the numbers, as the end of a sentence; empty when it could.
        """
        ...

    def use(self, residents: Iterable[SequenceView], first: SequenceView | None) -> CacheUse:
        """What the residents hold and lose; positions that several share count once.

        `first` is the first in order of arrival that is not resident.
        """
        ...

    def trial(self) -> Trial: ...

    def table(self, request_id: RequestId) -> Sequence[int]:
        """The block table; the cache's own list, not to be kept or changed."""
        ...

    def record(self, sequence: SequenceView) -> None:
        """What is computed has become final: full blocks may serve as prefixes from now on."""
        ...

    def trim(self, sequence: SequenceView) -> None:
        """Gives back blocks behind the known tokens and what was reserved, after drafts failed."""
        ...

    def free(self, sequence: SequenceView) -> None:
        """The sequence has ended, or left, at a step boundary."""
        ...

    def reset(self) -> None:
        """Forgets prefixes. Nobody may hold a block."""
        ...
