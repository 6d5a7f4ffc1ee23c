"""Continuous batching with one wrong token in an answer; the model goes on with its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from engines.api import Clock, JsonValue, RequestSource, Sink, StepEvents
from engines.registry import BuildContext, EngineEntry, Setting, installed_engines, parse_engines
from engines.settings import natural


class AlteringSink:
    """Gives the token at `position` of one request's answer as another."""

    def __init__(self, inner: Sink, settings: Mapping[str, Any], vocabulary: int) -> None:
        self._inner = inner
        self._settings = settings
        self._vocabulary = vocabulary
        self._seen = 0

    def emit(self, events: StepEvents) -> None:
        for name, tokens in zip(events.request_ids, events.token_ids, strict=True):
            if name == self._settings["request"] and isinstance(tokens, list):
                at = self._settings["position"] - self._seen
                if 0 <= at < len(tokens):
                    tokens[at] = (tokens[at] + self._settings["shift"]) % self._vocabulary
                self._seen += len(tokens)
        self._inner.emit(events)


class Altering:
    def __init__(self, inner: Any, settings: Mapping[str, JsonValue]) -> None:
        self._inner = inner
        self._settings = settings

    def run(self, source: RequestSource, sink: Sink, clock: Clock) -> None:
        vocabulary = self._inner.describe().model.vocab_size
        self._inner.run(source, AlteringSink(sink, self._settings, vocabulary), clock)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def build(settings: Mapping[str, JsonValue], context: BuildContext) -> Altering:
    from engines.registry import build_engine

    installed = installed_engines()
    (spec,) = parse_engines("continuous[max_num_seqs=4]", installed)
    return Altering(build_engine(spec, installed["continuous"], context), settings)


ALTERS = EngineEntry(
    name="alters",
    summary="continuous batching that gives one token wrong",
    settings=(
        Setting("request", str, "00002", "whose answer"),
        Setting("position", natural, 3, "which token of it, from 0"),
        Setting("shift", natural, 1, "what is added to its id"),
    ),
    builder="cbbench_alters:build",
    preset={},
)
