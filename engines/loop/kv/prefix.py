"""Which blocks hold which prefix, so that prompts that begin alike share them.

A prefix is a chain of full blocks. A node stands for one chain from the first token on; it is
found by its parent's node and the block's own tokens, compared as tokens: the hash only speeds
the search up. Nodes are never reused, so a child whose parent was evicted is never hit by mistake.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

ROOT: Final = 0
Key = tuple[int, tuple[int, ...]]


class PrefixIndex:
    """Maps chains of `block_size` tokens to blocks. Who holds a block is the pool's matter."""

    def __init__(self, block_size: int) -> None:
        self._block_size = block_size
        self._node_count = ROOT
        self._found: dict[Key, tuple[int, int]] = {}  # key -> (node, block)
        self._key_of: dict[int, Key] = {}  # block -> key

    def match(self, tokens: Sequence[int]) -> list[tuple[int, int]]:
        """The (node, block) pairs of the longest cached chain, short of the last token.

        At least one token is left to compute, since a next token comes only from computing.
        """
        chain: list[tuple[int, int]] = []
        node = ROOT
        size = self._block_size
        for end in range(size, len(tokens), size):
            found = self._found.get((node, tuple(tokens[end - size : end])))
            if found is None:
                break
            chain.append(found)
            node = found[0]
        return chain

    def add(self, parent: int, tokens: tuple[int, ...], block: int) -> int:
        """Enters a full block behind `parent`; returns its node, an earlier twin's if any."""
        key = (parent, tokens)
        found = self._found.get(key)
        if found is not None:
            return found[0]
        self._node_count += 1
        self._found[key] = (self._node_count, block)
        self._key_of[block] = key
        return self._node_count

    def forget(self, block: int) -> tuple[Key, int] | None:
        """The block is about to hold something else; returns what `restore` needs."""
        key = self._key_of.pop(block, None)
        if key is None:
            return None
        node, _ = self._found.pop(key)
        return key, node

    def restore(self, block: int, key: Key, node: int) -> None:
        """Undoes `forget`."""
        self._found[key] = (node, block)
        self._key_of[block] = key

    def holds(self, block: int) -> bool:
        return block in self._key_of
