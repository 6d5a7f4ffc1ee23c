"""The plain attention backend: right at a glance, on any device, and slow.

Every other backend is tested against it, and it takes over layers that they do not know. One
sequence and one head group at a time, scores and softmax in fp32; nothing is fused or batched.
"""

from __future__ import annotations

import torch

from engines.loop.attention.backend import LayerCall
from engines.loop.executors.packing import PackedBatch, context_slots


class ReferenceAttention:
    """Gathers each sequence's keys and values and computes the textbook formula."""

    name = "reference"

    def begin(self, packed: PackedBatch) -> ReferenceStep:
        return ReferenceStep(packed)


class ReferenceStep:
    """See `ReferenceAttention`."""

    def __init__(self, packed: PackedBatch) -> None:
        self._packed = packed

    def attend(self, call: LayerCall) -> torch.Tensor:
        packed, device = self._packed, call.query.device
        num_tokens, num_heads, _ = call.query.shape
        out = call.query.new_empty(num_tokens, num_heads, call.value_cache.shape[-1])
        for s in range(packed.num_sequences):
            first, end = int(packed.cu_seqlens[s]), int(packed.cu_seqlens[s + 1])
            slots = torch.from_numpy(context_slots(packed, s)).to(device)
            visible = visible_keys(
                torch.arange(len(slots) - (end - first), len(slots), device=device),
                torch.arange(len(slots), device=device),
                call.window,
            )
            keys, values = call.key_cache[slots], call.value_cache[slots]
            out[first:end] = _attend_one(call, call.query[first:end], keys, values, visible)
        return out


def visible_keys(
    query_positions: torch.Tensor, key_positions: torch.Tensor, window: int | None
) -> torch.Tensor:
    """[..., queries, keys]: causal, and not `window` or more positions back."""
    distance = query_positions[..., :, None] - key_positions[..., None, :]
    visible = distance >= 0
    return visible if window is None else visible & (distance < window)


def _attend_one(
    call: LayerCall,
    query: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    visible: torch.Tensor,
) -> torch.Tensor:
    groups = query.shape[1] // keys.shape[1]
    keys = keys.float().repeat_interleave(groups, dim=1)
    values = values.float().repeat_interleave(groups, dim=1)
    scores = torch.einsum("qhd,khd->hqk", query.float(), keys) * call.scaling
    if call.softcap is not None:
        scores = torch.tanh(scores / call.softcap) * call.softcap
    scores = scores.masked_fill(~visible, float("-inf"))
    if call.sinks is not None:
        sinks = call.sinks.float()[:, None, None].expand(-1, scores.shape[1], 1)
        weights = torch.softmax(torch.cat([scores, sinks], dim=-1), dim=-1)[..., :-1]
    else:
        weights = torch.softmax(scores, dim=-1)
    return torch.einsum("hqk,khd->qhd", weights, values).to(query.dtype)
