"""Puts a loop together from its settings: a policy, a cache, and the model that computes.

Runs in the worker process; torch is loaded here and not before.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from engines.api import Engine, EngineInfo, JsonValue
from engines.loop.kv.choose import make_cache, with_reserve
from engines.loop.loop import EngineLoop
from engines.loop.plan import Policy
from engines.loop.policies.registry import PolicyContext, installed_policies
from engines.registry import BuildContext


def build(settings: Mapping[str, JsonValue], context: BuildContext) -> Engine:
    """The engine `loop`, and `continuous`, which is a preset of it."""
    from engines.loop.executors.sizing import blocks_for, kv_bytes_per_block
    from engines.loop.executors.torch_model import TorchExecutor, load_for_loop

    settings = with_reserve(settings)
    loaded = load_for_loop(context)
    policy = make_policy(settings, PolicyContext(loaded.device.type, loaded.info.max_model_len))
    block_size = _int(settings, "block_size")
    kv_memory = cast(int, settings["kv_memory"] or context.kv_memory)
    num_blocks = cast("int | None", settings["num_blocks"])
    if num_blocks is None:
        num_blocks = blocks_for(kv_memory, loaded.info, block_size)
    cache = make_cache(settings, num_blocks, loaded.info.max_model_len)
    executor = TorchExecutor(loaded, num_blocks, block_size)
    in_use = num_blocks * kv_bytes_per_block(loaded.info, block_size)
    resolved = dict(settings) | {"kv_memory": in_use, "num_blocks": num_blocks}
    resolved |= resolved_budget(policy)
    info = EngineInfo(
        name="loop",
        settings=resolved | {"attention": executor.attention},
        max_model_len=loaded.info.max_model_len,
        slots=policy.limits.max_num_seqs,
        kv_tokens=num_blocks * block_size,
        model=loaded.info,
    )
    return EngineLoop(policy, cache, executor, info, context.observer)


def make_policy(settings: Mapping[str, JsonValue], context: PolicyContext) -> Policy[Any]:
    """The policy that the settings name. Raises `CbbenchError` for settings that cannot work."""
    return installed_policies()[str(settings["policy"])].make(settings, context)


def resolved_budget(policy: Policy[Any]) -> dict[str, JsonValue]:
    """`max_num_batched_tokens` in force; nothing for policies without a budget."""
    budget = policy.limits.max_num_batched_tokens
    return {} if budget is None else {"max_num_batched_tokens": budget}


def _int(settings: Mapping[str, JsonValue], key: str) -> int:
    return cast(int, settings[key])
