"""The built-in engines, described without loading what they run on."""

from __future__ import annotations

from typing import Final

from engines.loop.policies.registry import policy_name, policy_variants
from engines.registry import EngineEntry, Setting, Variants
from engines.settings import (
    boolean,
    non_negative_float,
    one_of,
    optional_byte_size,
    optional_one_of,
    optional_positive_int,
    positive_int,
)

_KV_MEMORY: Final = Setting(
    "kv_memory",
    optional_byte_size,
    None,
    "bytes for keys and values (512MiB, 2GB); auto: the run's --kv-memory, equal for all engines",
)
_DELIVER: Final = Setting(
    "deliver",
    one_of("stream", "batch"),
    "stream",
    "stream: tokens leave as each step ends; batch: all at the batch's end",
)
_CACHE: Final = Setting(
    "cache",
    one_of("static", "dynamic"),
    "static",
    "transformers' cache: static is allocated once a batch, dynamic is copied as it grows",
)
_MAX_BATCH_SIZE: Final = Setting(
    "max_batch_size", positive_int, 16, "the most requests in one call of generate"
)

SEQUENTIAL: Final = EngineEntry(
    name="sequential",
    summary="transformers generate, one request at a time: the naive script",
    settings=(_DELIVER, _CACHE, _KV_MEMORY),
    builder="engines.generate:build_sequential",
    preset={},
)
STATIC: Final = EngineEntry(
    name="static",
    summary="transformers generate on fixed batches; waits until a batch is full",
    settings=(_MAX_BATCH_SIZE, _DELIVER, _CACHE, _KV_MEMORY),
    builder="engines.generate:build_static",
    preset={},
)
DYNAMIC: Final = EngineEntry(
    name="dynamic",
    summary="transformers generate on what gathers in a window, as request-level servers do",
    settings=(
        _MAX_BATCH_SIZE,
        Setting(
            "max_delay_ms",
            non_negative_float,
            50.0,
            "how long the oldest waiting request may wait for company, in milliseconds",
        ),
        _DELIVER,
        _CACHE,
        _KV_MEMORY,
    ),
    builder="engines.generate:build_dynamic",
    preset={},
)

_LOOP_SETTINGS: Final = (
    Setting("policy", policy_name, "chunked", "who runs in a step"),
    Setting("block_size", positive_int, 16, "tokens in a block of the cache"),
    Setting(
        "num_blocks",
        optional_positive_int,
        None,
        "blocks in the pool; auto: what kv_memory holds",
    ),
    _KV_MEMORY,
    Setting(
        "allocator",
        one_of("paged", "contiguous"),
        "paged",
        "paged: blocks as they are needed; contiguous: one region a request, from its admission on",
    ),
    Setting(
        "reserve",
        optional_one_of("max", "pow2", "exact"),
        None,
        "a region's length: the context, the next power of two of what the request comes to hold, "
        "or just that; auto: max (allocator contiguous)",
    ),
    Setting(
        "prefix_caching",
        boolean,
        False,
        "keep full blocks of ended requests for prompts that begin alike",
    ),
)
_POLICIES: Final = Variants("policy", policy_variants)
LOOP: Final = EngineEntry(
    name="loop",
    summary="the in-tree step loop with a policy and an allocator of choice",
    settings=_LOOP_SETTINGS,
    builder="engines.loop.build:build",
    preset={},
    variants=_POLICIES,
)
CONTINUOUS: Final = EngineEntry(
    name="continuous",
    summary="continuous batching with chunked prefill: loop[policy=chunked]",
    settings=_LOOP_SETTINGS,
    builder="engines.loop.build:build",
    preset={"policy": "chunked"},
    variants=_POLICIES,
)
