"""What a run was: everything that was asked for and everything that was found out, as JSON.

Pure: from the configuration, the drawn workload and what the engines say of themselves.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping
from typing import cast

from engines.api import EngineInfo, JsonValue
from engines.registry import EngineSpec
from harness.places import plain_settings, without_folders
from harness.run.config import RunConfig
from harness.run.fleet import EngineFailure
from workloads.workload import Load, Workload


def describe_request(config: RunConfig) -> dict[str, JsonValue]:
    """What is known before any model is loaded."""
    return {
        "goodput": config.goodput,
        "model": config.context.model_name,
        "device": config.context.device,
        "dtype": config.context.dtype,
        "threads": config.context.threads,
        "kv_memory": config.context.kv_memory,
        "max_model_len": config.context.max_model_len,
        "client_processes": config.context.client_processes,
        "seed": config.seed,
        "num_warmups": config.num_warmups,
        "repeats": config.repeats,
        "budget_s": config.budget_s,
        "until_ci": config.until_ci,
        "order": "random" if config.shuffled else "fixed",
        "ignore_eos": config.ignore_eos,
        "skip_chat_template": config.skip_chat_template,
        "save_outputs": config.save_outputs,
        "check_outputs": config.check_outputs,
        "save_plans": config.save_plans,
        "save_trace": config.save_trace,
    }


def describe_workload(workload: Workload) -> JsonValue:
    """`priorities`, how many requests have each, where one is not 0."""
    described: dict[str, JsonValue] = {
        "name": workload.name,
        "seed": workload.seed,
        "hash": workload.hash,
        "settings": dict(workload.settings),
        "clipped": dict(workload.clipped),
        "sessions": workload.num_sessions,
        "shared_prompt_share": workload.shared_prompt_share,
    }
    if any(workload.priorities):
        described["priorities"] = {str(n): count for n, count in workload.priorities.items()}
    return described


def describe_engines(specs: Iterable[EngineSpec], infos: Mapping[str, EngineInfo]) -> JsonValue:
    """Every engine by label: how it was asked for and the settings in force."""
    described: dict[str, JsonValue] = {}
    for spec in specs:
        info = infos.get(spec.label)
        described[spec.label] = {
            "spec": without_folders(spec.text),
            "settings": dict(info.settings) if info else plain_settings(spec.settings),
            "slots": info.slots if info else None,
            "kv_tokens": info.kv_tokens if info else None,
            "max_model_len": info.max_model_len if info else None,
            "notes": list(info.notes) if info else [],
        }
    return described


def describe_model(infos: Mapping[str, EngineInfo]) -> JsonValue:
    """The model as the first engine that has one loaded it."""
    models = [info.model for info in infos.values() if info.model is not None]
    return cast(JsonValue, dataclasses.asdict(models[0])) if models else None


def describe_loads(loads: Iterable[Load]) -> JsonValue:
    """The loads that were played, at the rates that they had."""
    return [
        {
            "name": load.name,
            "request_rate": "inf" if load.request_rate == math.inf else load.request_rate,
            "max_concurrency": load.max_concurrency,
        }
        for load in loads
    ]


def describe_failures(failures: Iterable[EngineFailure]) -> JsonValue:
    return [dataclasses.asdict(failure) for failure in failures]
