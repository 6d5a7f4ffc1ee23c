"""From settings to a memory: which allocator, and which settings cannot work together.

What an allocator does is its own module's matter.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, cast

from engines.api import CbbenchError, JsonValue
from engines.loop.kv.api import KVCache
from engines.loop.kv.contiguous import ContiguousCache, Reserve
from engines.loop.kv.paged import PagedCache

_DEFAULT_RESERVE: Final[Reserve] = "max"


def with_reserve(settings: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """`reserve` in force: `None` where nothing is reserved by it.

    Needs no model. Raises `CbbenchError` for settings of the memory that contradict each other.
    """
    reserve = settings["reserve"]
    if settings["allocator"] == "paged":
        if reserve is not None:
            raise CbbenchError(
                f"reserve={reserve} is a length of regions, and allocator=paged has none; "
                "add allocator=contiguous or leave reserve out"
            )
    elif settings["prefix_caching"]:
        raise CbbenchError(
            "prefix_caching=true shares blocks, and allocator=contiguous gives each request a "
            "region of its own; use allocator=paged or leave prefix_caching out"
        )
    else:
        reserve = reserve or _DEFAULT_RESERVE
    return dict(settings) | {"reserve": reserve}


def make_cache(settings: Mapping[str, JsonValue], num_blocks: int, max_model_len: int) -> KVCache:
    """The memory of resolved settings. Raises `CbbenchError` for a pool that is too small."""
    block_size = cast(int, settings["block_size"])
    if settings["allocator"] == "contiguous":
        reserve = cast(Reserve, settings["reserve"])
        return ContiguousCache(num_blocks, block_size, reserve=reserve, max_model_len=max_model_len)
    return PagedCache(num_blocks, block_size, prefix_caching=bool(settings["prefix_caching"]))
