"""The contract between the loop, which decides and allocates, and what computes a step.

A batch is plain data. An executor neither decides nor allocates: it is told which tokens to feed,
where their keys and values live, and which rows want a next token.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Protocol

from engines.api import RequestId, Sampling


@dataclass(slots=True)
class Row:
    """The work of one request in one step.

    The `tokens` (n >= 1) stand at positions `start .. start + n - 1`; position p lives in slot
    `block_table[p // block_size] * block_size + p % block_size`. The table covers `start + n +
    lookahead` positions and may be longer; it is the loop's own list, to be read during the step
    and never kept or changed. With `sample` the row wants the token after its last position, for
    which `sampling` and the `position` of the new token (`start + n`) key the noise. `lookahead`
    allows up to so many draft tokens to be proposed, computed and checked after `tokens`. A new
    token at a position below `forbidden_below` must not be one of `forbidden`.
    """

    request_id: RequestId
    tokens: Sequence[int]
    start: int
    block_table: Sequence[int]
    sample: bool
    sampling: Sampling
    lookahead: int = 0
    forbidden: Collection[int] = ()
    forbidden_below: int = 0

    @property
    def forbidden_next(self) -> Collection[int]:
        """What the token right after the row must not be."""
        next_position = self.start + len(self.tokens)
        return self.forbidden if next_position < self.forbidden_below else ()


@dataclass(slots=True)
class PaddingRow:
    """`num_tokens` positions that belong to nobody, behind `context` others, really computed.

    Reads and writes the executor's scratch block only (block number `num_blocks` of the pool).
    """

    num_tokens: int
    context: int


@dataclass(slots=True)
class SwapCopy:
    """Keys and values of one request to the host (`out`) or back; blocks in position order."""

    request_id: RequestId
    blocks: Sequence[int]
    num_tokens: int


@dataclass(slots=True)
class Batch:
    """One step: copies out, then copies in, then the rows, all in this order."""

    step: int
    rows: Sequence[Row]
    padding: Sequence[PaddingRow] = ()
    swap_out: Sequence[SwapCopy] = ()
    swap_in: Sequence[SwapCopy] = ()


@dataclass(slots=True)
class StepResult:
    """What a step gave; `tokens[i]` and `accepted[i]` belong to `batch.rows[i]`.

    A row without `sample` gives an empty list. Without lookahead a row gives one token; with it,
    `accepted[i] <= lookahead` drafts were right and `accepted[i] + 1` tokens come back.
    `drafted[i]` positions were computed for drafts. `prepare_s` is the building of tensors,
    `compute_s` the model until the tokens are on the host, `copy_s` the swap copies.
    """

    tokens: Sequence[Sequence[int]]
    accepted: Sequence[int] | None = None
    drafted: Sequence[int] | None = None
    prepare_s: float = 0.0
    compute_s: float = 0.0
    copy_s: float = 0.0


class Handle(Protocol):
    """A step under way."""

    def result(self) -> StepResult:
        """Waits for the step. Errors of the computation are raised here."""
        ...


class Executor(Protocol):
    """The compute side of a loop, for one pool of `num_blocks` blocks and one scratch block."""

    def submit(self, batch: Batch) -> Handle: ...

    def drop(self, request_id: RequestId) -> None:
        """Forgets the host copy of a request that will not come back."""
        ...

    def reset(self) -> None:
        """Forgets all keys, values and host copies; keeps weights and kernels."""
        ...

    def close(self) -> None: ...
