"""The free stretches of a row of blocks, from which contiguous regions are cut.

Gaps that touch are one gap at once, so the state depends on what is taken and not on the order in
which it was taken: taking a region back undoes giving it, exactly. Whose a region is, is not known
here. The cost of everything is that of a walk over the gaps, of which there is at most one more
than there are regions.
"""

from __future__ import annotations

from bisect import bisect_left


class Gaps:
    """Free stretches of `num_blocks` blocks, in order of place."""

    def __init__(self, num_blocks: int) -> None:
        self.num_free = num_blocks
        self._starts: list[int] = [0]
        self._lengths: list[int] = [num_blocks]

    @property
    def longest(self) -> int:
        return max(self._lengths, default=0)

    def shorter_than(self, count: int) -> int:
        """Free blocks in gaps that cannot hold `count` blocks in a row."""
        return sum(length for length in self._lengths if length < count)

    def take(self, count: int) -> int | None:
        """Cuts `count` blocks from the beginning of the shortest gap that holds them (best fit).

        Returns the first block, or `None` when no gap is long enough.
        """
        length = min((one for one in self._lengths if one >= count), default=None)
        if length is None:
            return None
        start = self._starts[self._lengths.index(length)]
        self.take_at(start, count)
        return start

    def take_at(self, start: int, count: int) -> None:
        """Takes just these blocks, which must be free."""
        index = bisect_left(self._starts, start + 1) - 1
        before = start - self._starts[index]
        behind = self._lengths[index] - before - count
        assert index >= 0, f"block {start} is not free"
        assert behind >= 0, f"blocks {start} to {start + count - 1} are not free"
        parts = [(self._starts[index], before), (start + count, behind)]
        self._starts[index : index + 1] = [place for place, length in parts if length]
        self._lengths[index : index + 1] = [length for _, length in parts if length]
        self.num_free -= count

    def give(self, start: int, count: int) -> None:
        """Makes blocks free again; gaps that they touch become one with them."""
        index = bisect_left(self._starts, start)
        end = start + count
        first, last = index, index
        if index > 0:
            before_end = self._starts[index - 1] + self._lengths[index - 1]
            assert before_end <= start, f"block {start} is free already"
            first = index - 1 if before_end == start else index
        if index < len(self._starts):
            assert self._starts[index] >= end, f"block {self._starts[index]} is free already"
            last = index + 1 if self._starts[index] == end else index
        length = sum(self._lengths[first:last]) + count
        place = self._starts[first] if first < index else start
        self._starts[first:last] = [place]
        self._lengths[first:last] = [length]
        self.num_free += count

    def stretches(self) -> list[tuple[int, int]]:
        """(first block, number of blocks) of each gap, in order of place."""
        return list(zip(self._starts, self._lengths, strict=True))
