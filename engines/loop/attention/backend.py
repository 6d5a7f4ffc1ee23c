"""The seam between a model's layers and the kernels that attend over the paged cache.

A backend sees a packed step once (`begin`), and then every layer of it (`attend`), when the
step's own keys and values already stand in the cache. It owns no cache and knows no model.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch

from engines.loop.executors.packing import PackedBatch


@dataclass(frozen=True, slots=True)
class LayerCall:
    """One layer's attention: T new tokens against the cache, in which they already stand.

    `window` of w lets position p see p - w + 1 .. p. `softcap` c bends scores x to
    `c * tanh(x / c)`. `sinks` are one extra score a head that takes weight and gives no value.
    """

    query: torch.Tensor  # [T, Hq, Dk]
    key: torch.Tensor  # [T, Hkv, Dk]
    value: torch.Tensor  # [T, Hkv, Dv]
    key_cache: torch.Tensor  # [slots, Hkv, Dk]
    value_cache: torch.Tensor  # [slots, Hkv, Dv]
    scaling: float
    window: int | None = None
    softcap: float | None = None
    sinks: torch.Tensor | None = None  # [Hq]


class StepAttention(Protocol):
    """One packed step, as a backend has prepared it for all its layers."""

    def attend(self, call: LayerCall) -> torch.Tensor:
        """[T, Hq, Dv], of the query's type."""
        ...


class AttentionBackend(Protocol):
    """A way to attend through block tables."""

    @property
    def name(self) -> str: ...

    def begin(self, packed: PackedBatch) -> StepAttention:
        """Prepares what all layers of the step share. Called from the thread that computes."""
        ...
