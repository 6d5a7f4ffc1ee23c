"""A model without a model: the next token is a hash of what is *read* from the cache.

It writes each fed token into its slot and reads the whole context back through the block table,
so a wrong slot, a lost copy or a block given to two requests changes the answer. No torch.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Sequence
from typing import Final

from engines.api import RequestId
from engines.loop.executors.api import Batch, Row, StepResult

_NOTHING: Final = -1


class HashingExecutor:
    """`num_blocks` blocks and a scratch block; tokens come from `range(vocab_size)`."""

    def __init__(self, num_blocks: int, block_size: int, vocab_size: int = 4096) -> None:
        self._num_slots = (num_blocks + 1) * block_size
        self._block_size = block_size
        self._vocab_size = vocab_size
        self.reset()

    def submit(self, batch: Batch) -> _Done:
        for copy in batch.swap_out:
            self._host[copy.request_id] = [
                self._slots[self._slot(copy.blocks, position)]
                for position in range(copy.num_tokens)
            ]
        for copy in batch.swap_in:
            for position, token in enumerate(self._host.pop(copy.request_id)):
                self._slots[self._slot(copy.blocks, position)] = token
        return _Done(StepResult(tokens=[self._compute(row) for row in batch.rows]))

    def drop(self, request_id: RequestId) -> None:
        del self._host[request_id]

    def reset(self) -> None:
        self._slots = array("q", [_NOTHING]) * self._num_slots
        self._host: dict[RequestId, list[int]] = {}

    def close(self) -> None:
        pass

    def _compute(self, row: Row) -> list[int]:
        for offset, token in enumerate(row.tokens):
            self._slots[self._slot(row.block_table, row.start + offset)] = token
        if not row.sample:
            return []
        length = row.start + len(row.tokens)
        context = [self._slots[self._slot(row.block_table, p)] for p in range(length)]
        token = hash_token(context, self._vocab_size)
        forbidden = row.forbidden_next
        while token in forbidden:
            token = (token + 1) % self._vocab_size
        return [token]

    def _slot(self, table: Sequence[int], position: int) -> int:
        return table[position // self._block_size] * self._block_size + position % self._block_size


class _Done:
    """A step that was computed when it was submitted."""

    def __init__(self, result: StepResult) -> None:
        self._result = result

    def result(self) -> StepResult:
        return self._result


def hash_token(context: Sequence[int], vocab_size: int) -> int:
    """The token after `context`: the same in every process and on every machine."""
    digest = hashlib.blake2b(array("q", context).tobytes(), digest_size=8).digest()
    return int.from_bytes(digest, "little") % vocab_size
