"""Which engines of a run are put side by side, and what a difference within a pair is due to.

Three causes are told apart: the runtime (`generate` against the step loop with the same batching),
the scheduler (two policies over one runtime and memory) and the memory (two allocators under one
policy). Any other pair is just two engines, and nothing in it is credited to one cause.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from engines.api import JsonValue
from harness.results.values import EngineSummary, Kind

_MEMORY: Final = ("allocator", "reserve")
# What is not the scheduler's: a policy's own settings (budget, order, ...) belong to it.
_RUNTIME_AND_MEMORY: Final = (
    *("attention", "block_size", "kv_memory", "max_num_seqs", "num_blocks", "prefix_caching"),
    *_MEMORY,
)


@dataclass(frozen=True, slots=True)
class Pair:
    """Two engines to compare, and what they differ in beside the cause."""

    kind: Kind
    baseline: str
    engine: str
    also_different: tuple[str, ...] = ()


def choose_pairs(
    labels: Sequence[str], engines: Mapping[str, EngineSummary], baseline: str | None
) -> list[Pair]:
    """The pairs with one cause first, then the baseline (else the first) against the others."""
    causes = [
        *_runtimes(labels, engines),
        *_schedulers(labels, engines),
        *_memories(labels, engines),
    ]
    told = {(pair.baseline, pair.engine) for pair in causes}
    first = next((label for label in labels if label == baseline), next(iter(labels), ""))
    others = [
        Pair("engines", first, label, _differences(engines[first], engines[label]))
        for label in labels
        if label != first and (first, label) not in told
    ]
    return causes + others


def _runtimes(labels: Sequence[str], engines: Mapping[str, EngineSummary]) -> list[Pair]:
    """Static batches of `generate` against static batches in the loop."""
    return [
        Pair("runtime", a, b, _differences(engines[a], engines[b], without=("policy", *_MEMORY)))
        for a in labels
        if engines[a].name == "static"
        for b in labels
        if _policy(engines[b]) == "static"
    ]


def _schedulers(labels: Sequence[str], engines: Mapping[str, EngineSummary]) -> list[Pair]:
    """Of the loops over one kind of memory, static batching (else the first) against the others."""
    groups: dict[JsonValue, list[str]] = {}
    for label in labels:
        if _policy(engines[label]) is not None:
            groups.setdefault(_memory(engines[label]), []).append(label)
    pairs = []
    for group in groups.values():
        a = next((label for label in group if _policy(engines[label]) == "static"), group[0])
        for b in group:
            if _policy(engines[a]) != _policy(engines[b]):
                also = _differences(engines[a], engines[b], only=_RUNTIME_AND_MEMORY)
                pairs.append(Pair("scheduler", a, b, also))
    return pairs


def _memories(labels: Sequence[str], engines: Mapping[str, EngineSummary]) -> list[Pair]:
    """A contiguous cache against a paged one under the same policy."""
    return [
        Pair("memory", a, b, _differences(engines[a], engines[b], without=_MEMORY))
        for a in labels
        for b in labels
        if _policy(engines[a]) is not None
        and _policy(engines[a]) == _policy(engines[b])
        and (_allocator(engines[a]), _allocator(engines[b])) == ("contiguous", "paged")
    ]


def _policy(engine: EngineSummary) -> JsonValue:
    policy: JsonValue = engine.settings.get("policy")
    return policy


def _allocator(engine: EngineSummary) -> JsonValue:
    allocator: JsonValue = engine.settings.get("allocator", "paged")
    return allocator


def _memory(engine: EngineSummary) -> str:
    return f"{_allocator(engine)} {engine.settings.get('reserve')}"


def _differences(
    a: EngineSummary,
    b: EngineSummary,
    *,
    without: Collection[str] = (),
    only: Collection[str] | None = None,
) -> tuple[str, ...]:
    """Facts that both have and that differ."""
    shared = a.settings.keys() & b.settings.keys() - set(without)
    keys = sorted(shared if only is None else shared & set(only))
    facts = [(key, a.settings[key], b.settings[key]) for key in keys]
    facts.append(("context", a.max_model_len, b.max_model_len))
    if None not in (a.slots, b.slots):  # a server elsewhere tells neither
        facts.append(("KV tokens", a.kv_tokens, b.kv_tokens))
        if "max_num_seqs" not in shared:
            facts.append(("rows a step", a.slots, b.slots))
    return tuple(f"{key} ({one} and {other})" for key, one, other in facts if one != other)
