"""What a workload looks like, for a list that people read: its text and its lengths."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from workloads.config import TextPrompts, WorkloadConfig, open_workload
from workloads.lengths import LengthPair
from workloads.outlines import Outline, draw_outlines, shared_share
from workloads.preset_files import Preset, preset_names
from workloads.traces.rows import Trace

_SAMPLE: Final = 5_000
_NO_CONTEXT: Final = 2**31


@dataclass(frozen=True, slots=True)
class LengthSummary:
    """Lengths in tokens."""

    mean: float
    p50: float
    p95: float
    p99: float
    max: int

    @classmethod
    def of(cls, lengths: Sequence[int]) -> LengthSummary:
        """Quantiles by linear interpolation."""
        p50, p95, p99 = np.quantile(lengths, (0.5, 0.95, 0.99)).tolist()
        return cls(float(np.mean(lengths)), p50, p95, p99, max(lengths))


@dataclass(frozen=True, slots=True)
class Description:
    """A workload in words and quantiles; the lengths of texts are not known before encoding.

    `shared_prompt_share` is the share of prompt tokens that an empty prefix cache may find.
    """

    name: str
    description: str
    source: str
    num_prompts: int
    loads: tuple[str, ...]
    classes: tuple[str, ...] = ()
    prompt: LengthSummary | None = None
    output: LengthSummary | None = None
    sessions: int = 0
    shared_prompt_share: float = 0.0


def describe_presets() -> list[Description]:
    """All presets, in alphabetical order."""
    return [describe(open_workload(name)) for name in preset_names()]


def describe(config: WorkloadConfig) -> Description:
    """A preset's quantiles come from a large draw with seed 0, before any context clips it."""
    match config.content:
        case Preset() as preset:
            return _describe_preset(preset)
        case Trace() as trace:
            return _describe_trace(config.spec, trace)
        case TextPrompts() as texts:
            return Description(
                name=config.spec,
                description="Text prompts from a file",
                source=str(texts.path),
                num_prompts=len(texts.prompts),
                loads=("all-at-once", "poisson-70%"),
            )


def _describe_preset(preset: Preset) -> Description:
    drawn = draw_outlines(preset.components, preset.sessions, _SAMPLE, 0, _NO_CONTEXT)
    offered = drawn[: preset.num_prompts]
    labels = dict.fromkeys(component.label for component in preset.components)
    return Description(
        name=preset.name,
        description=preset.description,
        source=preset.source,
        num_prompts=preset.num_prompts,
        loads=tuple(load.name for load in preset.default_loads),
        classes=tuple(label for label in labels if label),
        prompt=LengthSummary.of([outline.lengths.prompt for outline in drawn]),
        output=LengthSummary.of([outline.lengths.output for outline in drawn]),
        sessions=len({outline.session for outline in offered} - {None}),
        shared_prompt_share=shared_share([_as_tokens(outline) for outline in offered]),
    )


def _as_tokens(outline: Outline) -> tuple[int, ...]:
    """Numbers that are equal where the tokens would be."""
    return tuple((part.number << 32) + i for part in outline.parts for i in range(part.length))


def _describe_trace(name: str, trace: Trace) -> Description:
    pairs = [LengthPair(row.prompt_tokens, row.output_tokens) for row in trace.rows]
    return Description(
        name=name,
        description=f"A trace in the format {trace.format}, played at its own times",
        source=str(trace.path),
        num_prompts=len(pairs),
        loads=("trace",),
        prompt=LengthSummary.of([pair.prompt for pair in pairs]),
        output=LengthSummary.of([pair.output for pair in pairs]),
    )
