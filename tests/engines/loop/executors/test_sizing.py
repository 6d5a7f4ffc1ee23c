from __future__ import annotations

import pytest

from engines.api import CbbenchError, ModelInfo
from engines.loop.executors.sizing import blocks_for, kv_bytes_per_block

INFO = ModelInfo("m", 10, 64, (), (), 1, kv_bytes_per_token=100, dtype="float32", device="cpu")


def test_whole_blocks_only():
    assert kv_bytes_per_block(INFO, 16) == 1600
    assert blocks_for(1600, INFO, 16) == 1
    assert blocks_for(3 * 1600 - 1, INFO, 16) == 2


def test_too_little_memory_is_refused_with_the_numbers():
    with pytest.raises(CbbenchError, match=r"1599 bytes.*100 bytes a token, 1600 a block"):
        blocks_for(1599, INFO, 16)
