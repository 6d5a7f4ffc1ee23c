"""Puts a loop together from its settings: a policy, a cache, and the model that computes.

Runs in the worker process; torch is loaded here and not before.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, cast

from engines.api import CbbenchError, Engine, EngineInfo, JsonValue
from engines.loop.kv.choose import make_cache, with_reserve
from engines.loop.loop import EngineLoop
from engines.loop.plan import Policy
from engines.loop.policies.chunked import ChunkedPolicy
from engines.loop.policies.static import StaticPolicy
from engines.loop.policies.window import WindowPolicy
from engines.registry import BuildContext

_TOKEN_BUDGETS: Final = {"cpu": 256, "cuda": 2048}


def build(settings: Mapping[str, JsonValue], context: BuildContext) -> Engine:
    """The engine `loop`, and `continuous`, which is a preset of it."""
    from engines.loop.executors.sizing import blocks_for, kv_bytes_per_block
    from engines.loop.executors.torch_model import TorchExecutor, load_for_loop

    settings = with_reserve(settings)
    loaded = load_for_loop(context)
    settings = with_token_budget(settings, loaded.device.type)
    policy = make_policy(settings)
    block_size = _int(settings, "block_size")
    kv_memory = cast(int, settings["kv_memory"] or context.kv_memory)
    num_blocks = cast("int | None", settings["num_blocks"])
    if num_blocks is None:
        num_blocks = blocks_for(kv_memory, loaded.info, block_size)
    cache = make_cache(settings, num_blocks, loaded.info.max_model_len)
    executor = TorchExecutor(loaded, num_blocks, block_size)
    in_use = num_blocks * kv_bytes_per_block(loaded.info, block_size)
    resolved = dict(settings) | {"kv_memory": in_use, "num_blocks": num_blocks}
    info = EngineInfo(
        name="loop",
        settings=resolved | {"attention": executor.attention},
        max_model_len=loaded.info.max_model_len,
        slots=policy.limits.max_num_seqs,
        kv_tokens=num_blocks * block_size,
        model=loaded.info,
    )
    return EngineLoop(policy, cache, executor, info)


def with_token_budget(settings: Mapping[str, JsonValue], device: str) -> dict[str, JsonValue]:
    """`max_num_batched_tokens` in force: about a step's worth of compute on the device."""
    budget = settings["max_num_batched_tokens"] or _TOKEN_BUDGETS.get(device, 256)
    return dict(settings) | {"max_num_batched_tokens": budget}


def make_policy(settings: Mapping[str, JsonValue]) -> Policy[Any]:
    """The policy that the settings name. Raises `CbbenchError` for settings that cannot work."""
    max_num_seqs = _int(settings, "max_num_seqs")
    match settings["policy"]:
        case "static":
            return StaticPolicy(max_num_seqs)
        case "window":
            return WindowPolicy(max_num_seqs, cast(float, settings["max_delay_ms"]) / 1e3)
        case "chunked":
            return ChunkedPolicy(
                max_num_seqs=max_num_seqs,
                max_num_batched_tokens=_int(settings, "max_num_batched_tokens"),
                long_prefill_token_threshold=_int(settings, "long_prefill_token_threshold"),
                enable_chunked_prefill=bool(settings["enable_chunked_prefill"]),
            )
        case other:
            raise CbbenchError(f"unknown policy {other!r}; known: static, window, chunked")


def _int(settings: Mapping[str, JsonValue], key: str) -> int:
    return cast(int, settings[key])
