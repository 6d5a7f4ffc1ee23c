"""A workload: the requests of a run, drawn once, hashed, and handed equally to every engine.

Brings together arrivals, lengths, prompts, traces and presets. Does not decide how fast the
requests arrive (`loads`) and does not hand them out (`sources`).
"""

from __future__ import annotations

import hashlib
import math
import struct
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np

from engines.api import CbbenchError, JsonValue, ModelInfo, Request
from workloads.config import WorkloadConfig, open_workload
from workloads.drawing import Draft, DrawOptions, Encode, check_options, draft
from workloads.lengths import LengthPair, fit_context
from workloads.loads import AnyLoad, Load, RelativeLoad, at_load, loads_for
from workloads.outlines import Parts, shared_share
from workloads.prompts import PromptDrawer
from workloads.randomness import Purpose, permutation

__all__ = [
    "AnyLoad",
    "Encode",
    "Load",
    "ModelLimits",
    "RelativeLoad",
    "Workload",
    "WorkloadConfig",
    "at_load",
    "check_draw",
    "draw",
    "fresh_prompts",
    "loads_for",
    "open_workload",
    "warmup_requests",
    "workload_hash",
]


@dataclass(frozen=True, slots=True)
class ModelLimits:
    """What drawing needs to know of the model. The special ids include the end-of-text ones."""

    vocab_size: int
    max_model_len: int
    special_token_ids: tuple[int, ...] = ()

    @classmethod
    def of(cls, info: ModelInfo) -> ModelLimits:
        special = sorted({*info.special_token_ids, *info.eos_token_ids})
        return cls(info.vocab_size, info.max_model_len, tuple(special))


@dataclass(frozen=True, slots=True)
class Workload:
    """The drawn requests. `scheduled_s` is at unit rate, or in a trace's own seconds.

    `base_rate` is the mean rate of those times: 1 for drawn arrivals, the trace's own otherwise,
    `inf` when all of a trace's arrivals are at one instant. `burstiness` means nothing with
    `own_times`. `clipped` counts the requests whose `prompt` or `output` length had to change.
    `parts` tells what each prompt is made of, and is empty where prompts were texts.
    `shared_prompt_share` is the share of prompt tokens that an empty prefix cache may find.
    """

    name: str
    seed: int
    requests: tuple[Request, ...]
    hash: str
    own_times: bool
    base_rate: float
    burstiness: float
    parts: tuple[Parts, ...]
    shared_prompt_share: float
    settings: Mapping[str, JsonValue]
    clipped: Mapping[str, int]
    default_loads: tuple[AnyLoad, ...]

    @property
    def num_sessions(self) -> int:
        """0: each request stands for itself."""
        return len({request.session for request in self.requests} - {None})

    @property
    def num_classes(self) -> int:
        return len({request.request_class for request in self.requests})

    @property
    def priorities(self) -> Mapping[int, int]:
        """How many requests have each, the first to be served first."""
        return dict(sorted(Counter(request.priority for request in self.requests).items()))


def check_draw(
    config: WorkloadConfig,
    *,
    seed: int,
    num_prompts: int | None = None,
    input_len: int | None = None,
    output_len: int | None = None,
    range_ratio: float = 0.0,
    burstiness: float | None = None,
    trace_scale: float = 1.0,
) -> None:
    """Raises what `draw` would raise for these options, before any model is loaded."""
    check_options(
        config,
        DrawOptions(
            seed=seed,
            num_prompts=num_prompts,
            input_len=input_len,
            output_len=output_len,
            range_ratio=range_ratio,
            burstiness=burstiness,
            trace_scale=trace_scale,
        ),
    )


def draw(
    config: WorkloadConfig,
    *,
    seed: int,
    limits: ModelLimits,
    num_prompts: int | None = None,
    input_len: int | None = None,
    output_len: int | None = None,
    range_ratio: float = 0.0,
    burstiness: float | None = None,
    trace_scale: float = 1.0,
    encode: Encode | None = None,
) -> Workload:
    """Draws the requests; the same arguments always give the same hash.

    `input_len` and `output_len` replace a preset's lengths, spread by `range_ratio`. `encode`
    turns texts into token ids and is needed for `jsonl:` only. `trace_scale` stretches a trace's
    times: 2 takes twice as long. Raises `CbbenchError` for what the workload cannot take.
    """
    if limits.max_model_len < 2:
        raise CbbenchError(
            f"a context of {limits.max_model_len} tokens holds no prompt and answer; expected >= 2"
        )
    options = DrawOptions(
        seed=seed,
        num_prompts=num_prompts,
        input_len=input_len,
        output_len=output_len,
        range_ratio=range_ratio,
        burstiness=burstiness,
        trace_scale=trace_scale,
    )
    drafted = draft(config, options, limits.max_model_len, encode)
    requests = _requests(drafted, _prompts(drafted, seed, limits))
    return Workload(
        name=config.name,
        seed=seed,
        requests=requests,
        hash=workload_hash(requests, drafted.burstiness),
        own_times=drafted.own_times,
        base_rate=drafted.base_rate,
        burstiness=drafted.burstiness,
        parts=_parts(drafted),
        shared_prompt_share=shared_share([request.prompt_token_ids for request in requests]),
        settings=_settings(config, options, drafted, limits.max_model_len),
        clipped={
            "prompt": sum(pair.prompt_clipped for pair in drafted.lengths),
            "output": sum(pair.output_clipped for pair in drafted.lengths),
        },
        default_loads=drafted.default_loads,
    )


def warmup_requests(workload: Workload, n: int, limits: ModelLimits) -> list[Request]:
    """`n` requests of the same length mix with other ids and other tokens, all at t0.

    Their lengths are evenly spread over the sorted ones of the workload, the longest included.
    """
    if n < 1:
        return []
    drawer = _drawer(workload.seed, limits)
    by_length = sorted(map(_lengths_of, workload.requests), key=lambda p: p.prompt + p.output)
    ranks = [round(i * (len(by_length) - 1) / max(n - 1, 1)) for i in range(n)] if n > 1 else [-1]
    order = permutation(workload.seed, Purpose.WARMUP, n).tolist()
    pairs = [fit_context(by_length[ranks[i]], limits.max_model_len) for i in order]
    return [
        Request(
            request_id=f"warmup-{i:05d}",
            prompt_token_ids=drawer.draw(drawer.capacity // 2 + i, pair.prompt),
            max_tokens=pair.output,
            request_class=pair.label,
        )
        for i, pair in enumerate(pairs)
    ]


def fresh_prompts(workload: Workload, generation: int, limits: ModelLimits) -> Workload:
    """The same lengths and arrivals with token ids that no other generation has.

    For engines whose prefix cache cannot be emptied between rounds. What prompts of a generation
    have in common stays so. Generation 0 is the workload itself; texts stay as they are.
    """
    if generation == 0 or not workload.parts:
        return workload
    drawer = _drawer(workload.seed, limits)
    texts = 1 + max(part.number for parts in workload.parts for part in parts)
    requests = tuple(
        replace(request, prompt_token_ids=_compose(drawer, parts, generation * texts))
        for request, parts in zip(workload.requests, workload.parts, strict=True)
    )
    fresh_hash = workload_hash(requests, workload.burstiness)
    return replace(workload, requests=requests, hash=fresh_hash)


def workload_hash(requests: Sequence[Request], burstiness: float) -> str:
    """SHA-256 in hex over token ids, lengths, `max_tokens`, the unrated arrivals, burstiness.

    Where there are sessions, or priorities other than 0, over them too.
    """
    digest = hashlib.sha256(b"cbbench workload 1")
    digest.update(struct.pack("<qd", len(requests), burstiness))
    for request in requests:
        max_tokens = -1 if request.max_tokens is None else request.max_tokens
        digest.update(
            struct.pack("<qqd", len(request.prompt_token_ids), max_tokens, request.scheduled_s)
        )
        digest.update(np.array(request.prompt_token_ids, dtype="<i8").tobytes())
    if any(request.session is not None for request in requests):
        digest.update(repr([request.session for request in requests]).encode())
    if any(request.priority for request in requests):
        digest.update(repr(("priorities", [request.priority for request in requests])).encode())
    return digest.hexdigest()


def _prompts(drafted: Draft, seed: int, limits: ModelLimits) -> Iterable[tuple[int, ...]]:
    if drafted.token_ids is not None:
        return drafted.token_ids
    drawer = _drawer(seed, limits)
    return (_compose(drawer, parts, 0) for parts in _parts(drafted))


def _parts(drafted: Draft) -> tuple[Parts, ...]:
    if drafted.token_ids is not None:
        return ()
    return tuple(outline.parts for outline in drafted.outlines)


def _compose(drawer: PromptDrawer, parts: Parts, first_number: int) -> tuple[int, ...]:
    texts = (drawer.draw(first_number + part.number, part.length) for part in parts)
    return tuple(chain.from_iterable(texts))


def _requests(drafted: Draft, prompts: Iterable[tuple[int, ...]]) -> tuple[Request, ...]:
    rows = zip(prompts, drafted.outlines, drafted.arrivals_s, strict=True)
    return tuple(
        Request(
            request_id=f"{i:05d}",
            prompt_token_ids=prompt,
            max_tokens=outline.lengths.output,
            scheduled_s=arrival_s,
            request_class=outline.lengths.label,
            priority=outline.priority,
            session=outline.session,
        )
        for i, (prompt, outline, arrival_s) in enumerate(rows)
    )


def _settings(
    config: WorkloadConfig, options: DrawOptions, drafted: Draft, max_model_len: int
) -> Mapping[str, JsonValue]:
    """Everything that made the workload, fit for JSON: an infinite burstiness is `"inf"`."""
    burstiness = "inf" if drafted.burstiness == math.inf else drafted.burstiness
    return {
        "workload": config.name,
        "seed": options.seed,
        "num_prompts": len(drafted.outlines),
        "input_len": options.input_len,
        "output_len": options.output_len,
        "range_ratio": options.range_ratio,
        "burstiness": None if drafted.own_times else burstiness,
        "trace_scale": options.trace_scale if drafted.own_times else None,
        "max_model_len": max_model_len,
        "adds_bos": False if drafted.token_ids is None else None,
    }


def _drawer(seed: int, limits: ModelLimits) -> PromptDrawer:
    return PromptDrawer(seed, limits.vocab_size, limits.special_token_ids)


def _lengths_of(request: Request) -> LengthPair:
    return LengthPair(len(request.prompt_token_ids), request.max_tokens or 1, request.request_class)
