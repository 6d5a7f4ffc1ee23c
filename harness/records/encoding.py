"""How facts become lines: the form of a raw file, for its writer and its reader.

    first line   {"v": 1, "key": [...], "spec", "info", "save_outputs", "closed_loop",
                  "requests": [columns]}
    a step       {"t": time, "r": [request], "n": [tokens], "k": [[ids]], "f": [ends], "s": [row],
                  "c": [[request, [tokens]]]}
    an arrival   {"a": [[request, scheduled_s]]}
    last line    {"end": {trailer}}

A request is its index in the first line, or its id as text when it is not among them. `n` is left
out when every request got one token; `c` tells, for some of those that end, what their token events
had carried in truth. `"nan": true` marks a line in which a number was none.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, asdict, fields
from operator import attrgetter
from typing import Any, Final, cast

from engines.api import (
    EngineInfo,
    Finish,
    JsonValue,
    ModelInfo,
    PromptLimits,
    Request,
    RequestStats,
    StepEvents,
    StepRow,
)

STEP_FIELDS: Final = tuple(field.name for field in fields(StepRow))
STATS_FIELDS: Final = tuple(field.name for field in fields(RequestStats))
_STEP_NEEDS: Final = tuple(field.name for field in fields(StepRow) if field.default is MISSING)
REQUEST_FIELDS: Final = (
    "request_id",
    "request_class",
    "session",
    "prompt_tokens",
    "max_tokens",
    "ignore_eos",
    "scheduled_s",
)
_step_values: Final = attrgetter(*STEP_FIELDS)
_stats_values: Final = attrgetter(*STATS_FIELDS)


def _plain(value: Any) -> Any:
    """A foreign scalar (numpy, torch) as Python's own."""
    return value.item()


_encode: Final = json.JSONEncoder(allow_nan=False, separators=(",", ":"), default=_plain).encode


def strict_json(value: Any) -> Any:
    """The same value without what JSON lacks: NaN becomes null, infinity the text "inf"."""
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else ("inf" if value > 0 else "-inf")
    if isinstance(value, Mapping):
        return {str(key): strict_json(item) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [strict_json(item) for item in value]
    return value


def _finite(value: Any) -> Any:
    """The same value with null for NaN and infinity, which no time and no count can be."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_finite(item) for item in value]
    return value


def request_columns(requests: Sequence[Request]) -> dict[str, list[Any]]:
    """What a record keeps of the workload, a list a field."""
    rows = [
        (
            r.request_id,
            r.request_class,
            r.session,
            len(r.prompt_token_ids),
            r.max_tokens,
            r.ignore_eos,
            r.scheduled_s,
        )
        for r in requests
    ]
    columns = zip(*rows, strict=True) if rows else ((),) * len(REQUEST_FIELDS)
    return {name: list(column) for name, column in zip(REQUEST_FIELDS, columns, strict=True)}


def encode_line(value: Mapping[str, Any]) -> str:
    """One line of strict JSON, plain ASCII; what is no number, or no finite one, is null."""
    try:
        return _encode(value)
    except ValueError:
        return _encode(_finite(value) | {"nan": True})


def encode_events(
    events: StepEvents, indices: Mapping[str, int], *, save_outputs: bool
) -> str | None:
    """The line of one step; `None` when there is nothing to say."""
    line: dict[str, Any] = {"t": events.time_s}
    if events.request_ids:
        line["r"] = [indices.get(name, name) for name in events.request_ids]
        counts = [len(ids) for ids in events.token_ids]
        if any(count != 1 for count in counts):
            line["n"] = counts
        if save_outputs:
            line["k"] = [list(ids) for ids in events.token_ids]
    if events.finished:
        line["f"] = [_end(finish, indices) for finish in events.finished]
        corrected = [f for f in events.finished if f.token_counts is not None]
        if corrected:
            line["c"] = [
                [indices.get(f.request_id, f.request_id), list(f.token_counts or ())]
                for f in corrected
            ]
    if events.step is not None:
        line["s"] = _step_values(events.step)
    return encode_line(line) if len(line) > 1 else None


def decode_step(values: Sequence[Any]) -> StepRow | None:
    """A row from its values; trailing fields that an older file lacks keep their defaults.

    `None` where a number that every row has is none.
    """
    given = dict(zip(STEP_FIELDS, values, strict=False))
    if any(given[name] is None for name in _STEP_NEEDS):
        return None
    return StepRow(**_without_missing(given, StepRow))


def decode_stats(values: Sequence[Any]) -> RequestStats:
    """Lists become tuples, so that both forms of a record are equal."""
    plain = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in zip(STATS_FIELDS, values, strict=False)
    }
    ends = plain.get("preempted_from_s") or (), plain.get("preempted_until_s") or ()
    if None in ends[0] or None in ends[1]:
        plain["preempted_from_s"] = plain["preempted_until_s"] = ()
    return RequestStats(**_without_missing(plain, RequestStats))


def _without_missing(given: Mapping[str, Any], kind: Any) -> dict[str, Any]:
    """Without a null where a field's default is a number: the default stands then."""
    defaults = {field.name: field.default for field in fields(kind)}
    return {k: value for k, value in given.items() if value is not None or defaults[k] is None}


def info_to_json(info: EngineInfo) -> dict[str, Any]:
    plain = {field.name: getattr(info, field.name) for field in fields(EngineInfo)}
    plain["model"] = asdict(info.model) if info.model else None
    plain["prompts"] = asdict(info.prompts) if info.prompts else None
    return cast(dict[str, Any], strict_json(plain))


def info_from_json(value: Mapping[str, Any]) -> EngineInfo:
    """The reverse of `info_to_json`; keys of a newer writer are passed over."""
    known = {field.name for field in fields(EngineInfo)}
    given = {key: item for key, item in value.items() if key in known}
    model = given.pop("model", None)
    notes = tuple(given.pop("notes", ()))
    prompts = _prompts(given.pop("prompts", None))
    return EngineInfo(**given, model=_model(model), notes=notes, prompts=prompts)


def _model(value: Mapping[str, JsonValue] | None) -> ModelInfo | None:
    if value is None:
        return None
    known = {field.name for field in fields(ModelInfo)}
    plain: dict[str, Any] = {key: item for key, item in value.items() if key in known}
    for name in ("eos_token_ids", "special_token_ids"):
        plain[name] = tuple(plain[name])
    return ModelInfo(**plain)


def _prompts(value: Mapping[str, Any] | None) -> PromptLimits | None:
    if value is None:
        return None
    return PromptLimits(value["vocab_size"], tuple(value["special_token_ids"]))


def _end(finish: Finish, indices: Mapping[str, int]) -> list[Any]:
    return [
        indices.get(finish.request_id, finish.request_id),
        finish.status,
        finish.finish_reason,
        finish.reason,
        _stats_values(finish.stats),
    ]
