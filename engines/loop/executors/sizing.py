"""How many blocks of keys and values a number of bytes holds. Plain arithmetic, no allocation."""

from __future__ import annotations

from engines.api import CbbenchError, ModelInfo


def kv_bytes_per_block(info: ModelInfo, block_size: int) -> int:
    """Keys and values of all layers for one block."""
    return info.kv_bytes_per_token * block_size


def blocks_for(kv_memory: int, info: ModelInfo, block_size: int) -> int:
    """How many blocks `kv_memory` bytes hold, beside the one scratch block.

    The scratch block is the executor's own and is not taken from `kv_memory`, which is what
    requests may use. Raises `CbbenchError` when not one block fits.
    """
    per_block = kv_bytes_per_block(info, block_size)
    if kv_memory < per_block:
        raise CbbenchError(
            f"kv_memory of {kv_memory} bytes holds no block of {block_size} tokens of {info.name} "
            f"({info.kv_bytes_per_token} bytes a token, {per_block} a block); "
            f"give at least {per_block} bytes or a smaller block_size"
        )
    return kv_memory // per_block
