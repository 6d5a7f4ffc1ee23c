"""The fast CPU backend: decodes read through their block tables in a compiled kernel.

Sequences with several new tokens stay with torch's fused kernel, where the matrix products pay
for the gather. Needs numba; imported only when it is chosen.
"""

from __future__ import annotations

import numba
import numpy as np
import torch

from engines.loop.attention.backend import LayerCall
from engines.loop.attention.cpu_kernels import Array, attend_decodes
from engines.loop.attention.gathered import GatheredStep
from engines.loop.attention.reference import ReferenceStep
from engines.loop.executors.packing import PackedBatch

_CPU = torch.device("cpu")
_NO_SINKS = torch.empty(0)
_ITEMS_AT_ONCE = 4  # a thread takes so many; contexts differ, so threads must come back for more


class CompiledAttention:
    """See the module. The kernel compiles at the first step, or loads from numba's cache."""

    name = "compiled"

    def __init__(self) -> None:
        self._most_threads = int(vars(numba.config)["NUMBA_NUM_THREADS"])

    def begin(self, packed: PackedBatch) -> CompiledStep:
        # numba's count of threads belongs to the calling thread, so it is set where it is used.
        threads = torch.get_num_threads()
        numba.set_num_threads(min(threads, self._most_threads))
        if torch.get_num_threads() != threads:  # numba's first launch sets OpenMP's for us all
            torch.set_num_threads(threads)
        return CompiledStep(packed)


class CompiledStep:
    """One step; types other than float32 and bfloat16 go to the gathering backend."""

    def __init__(self, packed: PackedBatch) -> None:
        self._packed = packed
        self._others = GatheredStep(packed, _CPU, decodes=False)
        self._all: GatheredStep | None = None
        decodes = np.flatnonzero(packed.query_lens == 1)
        self._first_entries = packed.table_offsets[decodes]
        self._tokens = packed.cu_seqlens[decodes]
        self._lengths = packed.context_lens[decodes]
        self._only_decodes = len(decodes) == packed.num_sequences

    def attend(self, call: LayerCall) -> torch.Tensor:
        if call.key_cache.dtype not in (torch.float32, torch.bfloat16):
            return self._gathered().attend(call)
        if not self._only_decodes and (call.softcap is not None or call.sinks is not None):
            return ReferenceStep(self._packed).attend(call)
        num_tokens, num_heads, _ = call.query.shape
        out = torch.empty(num_tokens, num_heads, call.value_cache.shape[-1])
        if len(self._tokens):
            self._attend_decodes(out, call)
        if not self._only_decodes:
            self._others.attend_into(out, call)
        return out.to(call.query.dtype)

    def _attend_decodes(self, out: torch.Tensor, call: LayerCall) -> None:
        sinks = _NO_SINKS if call.sinks is None else call.sinks
        with numba.parallel_chunksize(_ITEMS_AT_ONCE):
            attend_decodes(
                out.numpy(),
                call.query.float().contiguous().numpy(),
                _elements(call.key_cache),
                _elements(call.value_cache),
                self._packed.tables,
                self._first_entries,
                self._tokens,
                self._lengths,
                self._packed.block_size,
                call.scaling,
                call.window or 0,
                call.softcap or 0.0,
                sinks.float().contiguous().numpy(),
            )

    def _gathered(self) -> GatheredStep:
        if self._all is None:
            self._all = GatheredStep(self._packed, _CPU, decodes=True)
        return self._all


def _elements(cache: torch.Tensor) -> Array:
    """The cache's own memory as numpy sees it; numpy has no bfloat16."""
    if cache.dtype == torch.bfloat16:
        return cache.view(torch.int16).numpy().view(np.uint16)
    array: Array = cache.numpy()
    return array
