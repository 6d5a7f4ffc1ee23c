"""Paged attention from torch's own fused kernel, on any device: gather, then attend.

Decodes of similar length share one call, a fresh prompt attends to the step's own keys without
a gather, and every other chunk has a call of its own. Costs about three times the memory traffic
of reading through the block tables; layers with a softcap or sinks go to the reference.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.functional import scaled_dot_product_attention

from engines.loop.attention.backend import LayerCall
from engines.loop.attention.reference import ReferenceStep, visible_keys
from engines.loop.executors.packing import Ints, PackedBatch, context_slots

_SHORTEST_SHARE = 0.75  # of a bucket's longest context: bounds what padding wastes
_ALWAYS_TOGETHER = 64  # contexts this close share a call whatever their ratio


class GatheredAttention:
    """See the module."""

    name = "gathered"

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def begin(self, packed: PackedBatch) -> GatheredStep:
        return GatheredStep(packed, self._device, decodes=True)


@dataclass(frozen=True, slots=True)
class DecodeBucket:
    """Decodes attended in one call: token rows [B], their slots [B, L], which of them count."""

    tokens: torch.Tensor
    slots: torch.Tensor
    mask: torch.Tensor | None  # [B, 1, 1, L]


@dataclass(frozen=True, slots=True)
class Chunk:
    """Tokens `first .. end - 1` of one sequence, behind a context of others."""

    first: int
    end: int
    slots: torch.Tensor  # [L]
    mask: torch.Tensor  # [n, L]


class GatheredStep:
    """One step; `decodes=False` leaves the sequences with one new token to somebody else."""

    def __init__(self, packed: PackedBatch, device: torch.device, decodes: bool) -> None:
        self._packed = packed
        self._device = device
        lengths = packed.query_lens
        fresh = packed.context_lens == lengths
        self._decodes = np.flatnonzero(lengths == 1) if decodes else np.empty(0, dtype=np.int64)
        self._fresh = np.flatnonzero(fresh & (lengths > 1))
        self._chunked = np.flatnonzero(~fresh & (lengths > 1))
        self._buckets: dict[int | None, list[DecodeBucket]] = {None: self._make_buckets(None)}
        self._chunks: dict[int | None, list[Chunk]] = {None: self._make_chunks(None)}

    def attend(self, call: LayerCall) -> torch.Tensor:
        if call.softcap is not None or call.sinks is not None:
            return ReferenceStep(self._packed).attend(call)
        num_tokens, num_heads, _ = call.query.shape
        out = call.query.new_empty(num_tokens, num_heads, call.value_cache.shape[-1])
        self.attend_into(out, call)
        return out

    def attend_into(self, out: torch.Tensor, call: LayerCall) -> None:
        """Fills the rows of `out` [T, Hq, Dv] that this step serves."""
        if call.window not in self._buckets:
            self._buckets[call.window] = self._make_buckets(call.window)
            self._chunks[call.window] = self._make_chunks(call.window)
        for bucket in self._buckets[call.window]:
            out[bucket.tokens] = _attend_bucket(call, bucket)
        for s in self._fresh:
            first, end = int(self._packed.cu_seqlens[s]), int(self._packed.cu_seqlens[s + 1])
            out[first:end] = _attend_fresh(call, first, end)
        for chunk in self._chunks[call.window]:
            out[chunk.first : chunk.end] = _attend_chunk(call, chunk)

    def _make_buckets(self, window: int | None) -> list[DecodeBucket]:
        packed, limit = self._packed, window or np.iinfo(np.int32).max
        lengths = np.minimum(packed.context_lens[self._decodes], limit)
        order = np.argsort(-lengths, kind="stable")
        buckets: list[DecodeBucket] = []
        while len(order):
            longest = int(lengths[order[0]])
            shortest = min(int(longest * _SHORTEST_SHARE), longest - _ALWAYS_TOGETHER)
            together = lengths[order] >= shortest
            buckets.append(self._make_bucket(self._decodes[order[together]], longest))
            order = order[~together]
        return buckets

    def _make_bucket(self, sequences: Ints, longest: int) -> DecodeBucket:
        packed = self._packed
        ends = packed.context_lens[sequences].astype(np.int64)
        positions = ends[:, None] - longest + np.arange(longest)
        counted = positions >= 0
        # What does not count reads the sequence's own position 0: never somebody else's NaN.
        positions = np.where(counted, positions, 0)
        entries = packed.table_offsets[sequences].astype(np.int64)[:, None]
        blocks = packed.tables[entries + positions // packed.block_size].astype(np.int64)
        slots = blocks * packed.block_size + positions % packed.block_size
        return DecodeBucket(
            tokens=self._to_device(packed.cu_seqlens[sequences].astype(np.int64)),
            slots=self._to_device(slots),
            mask=None if counted.all() else self._to_device(counted[:, None, None, :]),
        )

    def _make_chunks(self, window: int | None) -> list[Chunk]:
        chunks = []
        for s in self._chunked:
            packed = self._packed
            first, end = int(packed.cu_seqlens[s]), int(packed.cu_seqlens[s + 1])
            context = int(packed.context_lens[s])
            start = context - (end - first)
            begin = 0 if window is None else max(0, start - window + 1)
            slots = context_slots(packed, int(s), begin)
            mask = visible_keys(
                torch.arange(start, context, device=self._device),
                torch.arange(begin, context, device=self._device),
                window,
            )
            chunks.append(Chunk(first, end, self._to_device(slots), mask))
        return chunks

    def _to_device(self, array: NDArray[Any]) -> torch.Tensor:
        return torch.from_numpy(array).to(self._device)


def _attend_bucket(call: LayerCall, bucket: DecodeBucket) -> torch.Tensor:
    """One query a sequence: the heads that share keys become the queries of one attention."""
    query = call.query[bucket.tokens]  # [B, Hq, Dk]
    batch, num_heads, dim = query.shape
    kv_heads = call.key_cache.shape[1]
    out = scaled_dot_product_attention(
        query.reshape(batch, kv_heads, num_heads // kv_heads, dim),
        call.key_cache[bucket.slots].transpose(1, 2),
        call.value_cache[bucket.slots].transpose(1, 2),
        attn_mask=bucket.mask,
        scale=call.scaling,
    )
    return out.reshape(batch, num_heads, out.shape[-1])


def _attend_fresh(call: LayerCall, first: int, end: int) -> torch.Tensor:
    length, window = end - first, call.window
    mask = None
    if window is not None and window < length:
        positions = torch.arange(length, device=call.query.device)
        mask = visible_keys(positions, positions, window)
    return _attend_dense(
        call, first, end, call.key[first:end], call.value[first:end], mask, causal=mask is None
    )


def _attend_chunk(call: LayerCall, chunk: Chunk) -> torch.Tensor:
    keys, values = call.key_cache[chunk.slots], call.value_cache[chunk.slots]
    return _attend_dense(call, chunk.first, chunk.end, keys, values, chunk.mask, causal=False)


def _attend_dense(
    call: LayerCall,
    first: int,
    end: int,
    keys: torch.Tensor,
    values: torch.Tensor,
    mask: torch.Tensor | None,
    causal: bool,
) -> torch.Tensor:
    """Keys and values [L, Hkv, D] to the output [n, Hq, Dv] of tokens `first .. end - 1`."""
    out = scaled_dot_product_attention(
        call.query[first:end].transpose(0, 1)[None],
        keys.transpose(0, 1)[None],
        values.transpose(0, 1)[None],
        attn_mask=mask,
        is_causal=causal,
        scale=call.scaling,
        enable_gqa=call.query.shape[1] != keys.shape[1],
    )
    return out[0].transpose(0, 1)
