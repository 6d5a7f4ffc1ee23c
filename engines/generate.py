"""The engines `sequential`, `static` and `dynamic`: transformers `generate`, batch after batch.

They are what people run without a serving engine, at its best honest settings. Here they are only
put together: generate_batching decides, generate_serving runs, generate_rows counts,
generate_stream computes.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import cast

import torch

from engines.api import Clock, EngineInfo, JsonValue, RequestSource, Sink
from engines.generate_batching import BatchRule, Bounds
from engines.generate_serving import Serving, Setup
from engines.generate_stream import GeneratePacker
from engines.models.causal import require_causal
from engines.models.load import LoadedModel, load_model
from engines.registry import BuildContext


def build_sequential(settings: Mapping[str, JsonValue], context: BuildContext) -> GenerateEngine:
    return _build("sequential", settings, context, BatchRule(1, 0.0))


def build_static(settings: Mapping[str, JsonValue], context: BuildContext) -> GenerateEngine:
    rule = BatchRule(cast(int, settings["max_batch_size"]), None)
    return _build("static", settings, context, rule)


def build_dynamic(settings: Mapping[str, JsonValue], context: BuildContext) -> GenerateEngine:
    delay_s = cast(float, settings["max_delay_ms"]) / 1000
    rule = BatchRule(cast(int, settings["max_batch_size"]), delay_s)
    return _build("dynamic", settings, context, rule)


def _build(
    name: str, settings: Mapping[str, JsonValue], context: BuildContext, rule: BatchRule
) -> GenerateEngine:
    loaded = load_model(context, "sdpa")
    require_causal(loaded)
    kv_memory = cast("int | None", settings.get("kv_memory"))
    if kv_memory is None:
        kv_memory = context.kv_memory
    resolved = {**settings, "kv_memory": kv_memory}
    return GenerateEngine(name, loaded, rule, resolved)


class GenerateEngine:
    """One model and one rule for batches. `settings` are the spec's, resolved."""

    def __init__(
        self, name: str, loaded: LoadedModel, rule: BatchRule, settings: Mapping[str, JsonValue]
    ) -> None:
        self._name = name
        self._settings = settings
        self._model_info = loaded.info
        per_token = loaded.info.kv_bytes_per_token
        kv_tokens = cast(int, settings["kv_memory"]) // per_token if per_token else None
        self._setup = Setup(
            rule=rule,
            bounds=Bounds(loaded.info.max_model_len, kv_tokens),
            packer=GeneratePacker(loaded, cast(str, settings["cache"])),
            eos_token_ids=loaded.info.eos_token_ids,
            streams=settings["deliver"] == "stream",
            reserves_whole=settings["cache"] == "static",
            stopping=threading.Event(),
        )

    def run(self, source: RequestSource, sink: Sink, clock: Clock) -> None:
        try:
            Serving(self._setup, source, sink, clock).serve()
        finally:
            self._setup.stopping.clear()

    def stop(self) -> None:
        self._setup.stopping.set()

    def describe(self) -> EngineInfo:
        resolved: dict[str, JsonValue] = {
            **self._settings,
            "attention": "sdpa",
            "padding": "left",
            "threads": torch.get_num_threads(),
        }
        return EngineInfo(
            name=self._name,
            settings=resolved,
            max_model_len=self._setup.bounds.max_model_len,
            slots=self._setup.rule.max_batch_size,
            kv_tokens=self._setup.bounds.kv_tokens,
            model=self._model_info,
            notes=(
                "kv_memory bounds rows x (widest prompt + longest answer); batches shrink to it",
            ),
        )

    def reset(self) -> None:
        """Nothing to do: each batch makes its cache and drops it."""

    def close(self) -> None:
        """Nothing to do: the weights go with the process."""
