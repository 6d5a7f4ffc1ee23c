"""A numba kernel that attends through block tables on a CPU, without gathering.

Imported only where numba is installed. Its functions stand at module level because only there
numba's cache on disk finds them again. It knows no torch, and only sequences with one new token.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit, prange, types
from numba.extending import intrinsic
from numpy.typing import NDArray

Array = NDArray[Any]
Number = Any  # an integer or float, of whatever width numba infers
# Sums may be reordered, but NaN and infinity keep their meaning: a broken model must look broken.
_FAST = frozenset({"reassoc", "contract", "nsz", "arcp", "afn"})


def _as_float32_code(_typing: Any, element: Any) -> Any:
    """A cached element as float32: itself, or bfloat16 given as its 16 bits."""

    def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        if element == types.float32:
            return arguments[0]
        word = context.get_value_type(types.uint32)
        bits = builder.shl(builder.zext(arguments[0], word), word(16))
        return builder.bitcast(bits, context.get_value_type(types.float32))

    return types.float32(element), generate


_as_float32: Any = intrinsic(_as_float32_code)


@njit(fastmath=set(_FAST), error_model="numpy", cache=True)
def _score(
    query: Array,
    keys: Array,
    head: int,
    base: Number,
    count: Number,
    scores: Array,
    at: Number,
    dim: int,
) -> None:
    """scores[r, at + o] = query[r] . keys[base + o, head]; `dim` is a literal where it can be."""
    for o in range(count):
        for r in range(query.shape[0]):
            total = np.float32(0)
            for d in range(dim):
                total += query[r, d] * _as_float32(keys[base + o, head, d])
            scores[r, at + o] = total


@njit(fastmath=set(_FAST), error_model="numpy", cache=True)
def _add(
    out: Array,
    values: Array,
    head: int,
    base: Number,
    count: Number,
    weights: Array,
    at: Number,
    dim: int,
) -> None:
    """out[r] += weights[r, at + o] * values[base + o, head], four positions at a time."""
    fours = count - count % 4
    for r in range(out.shape[0]):
        for o in range(0, fours, 4):
            w0, w1 = weights[r, at + o], weights[r, at + o + 1]
            w2, w3 = weights[r, at + o + 2], weights[r, at + o + 3]
            for d in range(dim):
                out[r, d] += (
                    w0 * _as_float32(values[base + o, head, d])
                    + w1 * _as_float32(values[base + o + 1, head, d])
                    + w2 * _as_float32(values[base + o + 2, head, d])
                    + w3 * _as_float32(values[base + o + 3, head, d])
                )
        for o in range(fours, count):
            w0 = weights[r, at + o]
            for d in range(dim):
                out[r, d] += w0 * _as_float32(values[base + o, head, d])


@njit(fastmath=set(_FAST), error_model="numpy", cache=True)
def _softmax(scores: Array, scale: Number, softcap: Number, sink: Number, has_sink: bool) -> None:
    """In place over one row: the largest first, then the weights."""
    if softcap > 0:
        for i in range(scores.shape[0]):
            scores[i] = math.tanh(scores[i] * scale / softcap) * softcap
        scale = np.float32(1)
    largest = scores[0]
    for i in range(scores.shape[0]):
        largest = max(largest, scores[i])
    largest *= scale
    total: Number = np.float32(0)
    if has_sink:
        largest = max(largest, sink)
        total = math.exp(sink - largest)
    for i in range(scores.shape[0]):
        weight = math.exp(scores[i] * scale - largest)
        scores[i] = weight
        total += weight
    share = np.float32(1) / total
    for i in range(scores.shape[0]):
        scores[i] *= share


@njit(parallel=True, fastmath=set(_FAST), error_model="numpy", cache=True)
def attend_decodes(
    out: Array,  # [T, Hq, Dv] float32
    query: Array,  # [T, Hq, Dk] float32
    keys: Array,  # [slots, Hkv, Dk] float32, or bfloat16 as uint16
    values: Array,  # [slots, Hkv, Dv], likewise
    tables: Array,  # flat int32
    first_entries: Array,  # [B] where each sequence's table begins in `tables`
    tokens: Array,  # [B] the sequences' rows in `query` and `out`
    lengths: Array,  # [B] positions to attend to, the token's own included
    block_size: int,
    scale: Number,
    window: int,  # 0: none
    softcap: Number,  # 0: none
    sinks: Array,  # [Hq] float32, or [0]: none
) -> None:
    """Fills the rows `tokens` of `out`. A work item is one sequence and one head of keys."""
    scale, softcap = np.float32(scale), np.float32(softcap)
    num_heads = keys.shape[1]
    group = query.shape[1] // num_heads
    for item in prange(len(tokens) * num_heads):
        sequence, head = item // num_heads, item % num_heads
        row, length, first = tokens[sequence], lengths[sequence], first_entries[sequence]
        heads = slice(head * group, (head + 1) * group)
        q, o = query[row, heads], out[row, heads]
        begin = max(0, length - window) if window > 0 else 0
        scores = np.empty((group, length - begin), dtype=np.float32)
        at = begin
        while at < length:
            block, offset = at // block_size, at % block_size
            base = np.int64(tables[first + block]) * block_size + offset
            count = min(block_size - offset, length - at)
            if keys.shape[2] == 64:
                _score(q, keys, head, base, count, scores, at - begin, 64)
            elif keys.shape[2] == 128:
                _score(q, keys, head, base, count, scores, at - begin, 128)
            else:
                _score(q, keys, head, base, count, scores, at - begin, keys.shape[2])
            at += count
        for r in range(group):
            sink = sinks[head * group + r] if len(sinks) > 0 else np.float32(0)
            _softmax(scores[r], scale, softcap, sink, len(sinks) > 0)
            for d in range(o.shape[1]):
                o[r, d] = 0
        at = begin
        while at < length:
            block, offset = at // block_size, at % block_size
            base = np.int64(tables[first + block]) * block_size + offset
            count = min(block_size - offset, length - at)
            if values.shape[2] == 64:
                _add(o, values, head, base, count, scores, at - begin, 64)
            elif values.shape[2] == 128:
                _add(o, values, head, base, count, scores, at - begin, 128)
            else:
                _add(o, values, head, base, count, scores, at - begin, values.shape[2])
            at += count
