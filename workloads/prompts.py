"""Token ids for prompts of given lengths: random, and different from the first token on.

A prompt has exactly the drawn number of tokens: no begin-of-text token is added, and no special
id is drawn. So the length asked, the length reported and the length computed are one number.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from engines.api import CbbenchError
from workloads.randomness import Purpose, permutation, uniforms

Ids = npt.NDArray[np.int64]


class PromptDrawer:
    """Draws the prompt of a number: the same number always gives the same prompt.

    Of V usable ids, V prompts in a row begin with different tokens, and V * V with different
    pairs. So no two share a first block and no prefix cache makes one of them cheap.
    """

    def __init__(self, seed: int, vocab_size: int, special_token_ids: Sequence[int]) -> None:
        special = frozenset(special_token_ids)
        usable = [i for i in range(vocab_size) if i not in special]
        if not usable:
            raise CbbenchError(
                f"all {vocab_size} ids of the vocabulary are special; no prompt can be drawn"
            )
        self._seed = seed
        self._ids = np.array(usable, dtype=object)  # objects: a million tokens share their ints
        self._first = permutation(seed, Purpose.FIRST_TOKENS, len(usable))
        self._second = permutation(seed, Purpose.SECOND_TOKENS, len(usable))

    def draw(self, number: int, length: int) -> tuple[int, ...]:
        """The first `length` tokens of prompt `number`."""
        size = len(self._ids)
        ranks = (uniforms(self._seed, Purpose.TOKENS, number, length) * size).astype(np.int64)
        column, row = number % size, number // size
        ranks[0] = self._first[column]
        if length > 1:
            ranks[1] = self._second[(column + row) % size]
        return tuple(self._ids[ranks].tolist())

    @property
    def capacity(self) -> int:
        """How many prompts of two tokens or more are certain to differ from each other."""
        return len(self._ids) ** 2
