"""The tensors that hold keys and values, a pool of blocks a layer, and their copies on the host.

Which block belongs to whom is the loop's affair: this only writes, reads and copies slots.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from engines.api import RequestId
from engines.loop.executors.packing import table_slots

HostCopy = dict[int, tuple[torch.Tensor, torch.Tensor]]


@dataclass(frozen=True, slots=True)
class LayerShape:
    """What one layer keeps of a token."""

    num_kv_heads: int
    key_dim: int
    value_dim: int
    dtype: torch.dtype
    window: int | None = None

    @property
    def bytes_per_token(self) -> int:
        return self.num_kv_heads * (self.key_dim + self.value_dim) * self.dtype.itemsize


class PagedCache:
    """Keys and values `[slots, heads, dim]` by layer; block b is slots `b * block_size ...`.

    Block number `num_blocks` is the scratch block. Memory starts as zeros, so that no slot ever
    holds a NaN that nobody computed.
    """

    def __init__(
        self,
        layers: Mapping[int, LayerShape],
        num_blocks: int,
        block_size: int,
        device: torch.device,
    ) -> None:
        slots = (num_blocks + 1) * block_size
        self.block_size = block_size
        self.device = device
        self.keys = {
            i: torch.zeros(slots, s.num_kv_heads, s.key_dim, dtype=s.dtype, device=device)
            for i, s in layers.items()
        }
        self.values = {
            i: torch.zeros(slots, s.num_kv_heads, s.value_dim, dtype=s.dtype, device=device)
            for i, s in layers.items()
        }

    def write(
        self, layer: int, slots: torch.Tensor, key: torch.Tensor, value: torch.Tensor
    ) -> None:
        """Puts `[T, heads, dim]` into `slots`; of tokens that share a slot any one stays."""
        self.keys[layer].index_copy_(0, slots, key)
        self.values[layer].index_copy_(0, slots, value)

    def copy_out(self, blocks: Sequence[int], num_tokens: int) -> HostCopy:
        """The first `num_tokens` positions of `blocks`, on the host (pinned if from a GPU)."""
        slots = self._slots(blocks, num_tokens)
        return {
            layer: (_to_host(self.keys[layer][slots]), _to_host(self.values[layer][slots]))
            for layer in self.keys
        }

    def copy_in(self, copy: HostCopy, blocks: Sequence[int], num_tokens: int) -> None:
        """Puts the first `num_tokens` positions of a host copy into `blocks`."""
        slots = self._slots(blocks, num_tokens)
        for layer, (key, value) in copy.items():
            self.write(
                layer,
                slots,
                key[:num_tokens].to(self.device, non_blocking=True),
                value[:num_tokens].to(self.device, non_blocking=True),
            )

    def _slots(self, blocks: Sequence[int], num_tokens: int) -> torch.Tensor:
        table = torch.as_tensor(blocks, dtype=torch.int32).numpy()
        positions = torch.arange(num_tokens).numpy()
        return torch.from_numpy(table_slots(table, positions, self.block_size)).to(self.device)


class HostStore:
    """The copies of swapped-out requests, by request."""

    def __init__(self, cache: PagedCache) -> None:
        self._cache = cache
        self._copies: dict[RequestId, HostCopy] = {}

    def __len__(self) -> int:
        return len(self._copies)

    def put(self, request_id: RequestId, blocks: Sequence[int], num_tokens: int) -> None:
        self._copies[request_id] = self._cache.copy_out(blocks, num_tokens)

    def bring_back(self, request_id: RequestId, blocks: Sequence[int], num_tokens: int) -> None:
        """Copies in and frees the host's copy. Raises `RuntimeError` if there is none so long."""
        copy = self._copies.pop(request_id, None)
        held = -1 if copy is None else min((len(key) for key, _ in copy.values()), default=0)
        if copy is None or held < num_tokens:
            raise RuntimeError(
                f"swap_in of {request_id!r} asks for {num_tokens} tokens, "
                + ("but it was never swapped out" if copy is None else f"but {held} were kept")
            )
        self._cache.copy_in(copy, blocks, num_tokens)

    def drop(self, request_id: RequestId) -> None:
        self._copies.pop(request_id, None)

    def clear(self) -> None:
        self._copies.clear()


def _to_host(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.device.type == "cpu":
        return tensor  # indexing has already made it a copy of its own
    host = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
    return host.copy_(tensor, non_blocking=True)
