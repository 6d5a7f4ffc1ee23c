"""Lengths and arrivals of each kind of workload, before they become requests.

Knows presets, traces and files of texts, and what each of them cannot take. Draws no random
tokens.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from engines.api import CbbenchError
from workloads.arrivals import check_burstiness, unit_arrivals
from workloads.config import TextPrompts, WorkloadConfig
from workloads.lengths import Component, LengthPair, around, fit_context
from workloads.loads import AnyLoad, Load, RelativeLoad, all_at_once, relative
from workloads.outlines import Outline, draw_outlines, plain_outlines
from workloads.preset_files import Preset
from workloads.randomness import check_seed
from workloads.traces.rows import Trace

DEFAULT_MAX_TOKENS: Final = 128  # of a text prompt whose line says nothing
Encode = Callable[[list[str]], list[list[int]]]


@dataclass(frozen=True, slots=True)
class DrawOptions:
    """What a user may set beside the workload itself."""

    seed: int
    num_prompts: int | None = None
    input_len: int | None = None
    output_len: int | None = None
    range_ratio: float = 0.0
    burstiness: float | None = None
    trace_scale: float = 1.0


@dataclass(frozen=True, slots=True)
class Draft:
    """Requests to be: outlines and arrivals, and token ids where the prompts were texts."""

    outlines: Sequence[Outline]
    arrivals_s: Sequence[float]
    burstiness: float
    default_loads: tuple[AnyLoad, ...]
    own_times: bool = False
    base_rate: float = 1.0
    token_ids: Sequence[tuple[int, ...]] | None = None

    @property
    def lengths(self) -> list[LengthPair]:
        return [outline.lengths for outline in self.outlines]


def check_options(config: WorkloadConfig, options: DrawOptions) -> None:
    """Raises `CbbenchError` for an option that means nothing, or not for this workload."""
    check_seed(options.seed)
    _check_values(options)
    match config.content:
        case Preset() as preset:
            _refuse_trace_scale(config.spec, options)
            if preset.composes_prompts and options.input_len is not None:
                raise CbbenchError(
                    f"workload {config.spec!r} makes prompts of parts that others have too; got an "
                    f"input length of {options.input_len}; leave it out, or change the parts in a "
                    "preset file of your own"
                )
        case Trace() as trace:
            what = f"trace {trace.path}"
            _refuse(what, "input length", options.input_len)
            _refuse(what, "output length", options.output_len)
            _refuse(what, "burstiness", options.burstiness)
            _count(len(trace.rows), options, what, "rows")
        case TextPrompts() as texts:
            what = f"prompt file {texts.path}"
            _refuse_trace_scale(config.spec, options)
            _refuse(what, "input length", options.input_len)
            _refuse_range_ratio(options)
            _count(len(texts.prompts), options, what, "prompts")


def draft(
    config: WorkloadConfig, options: DrawOptions, max_model_len: int, encode: Encode | None
) -> Draft:
    """Checks the options and draws lengths and arrivals that fit `max_model_len`."""
    check_options(config, options)
    match config.content:
        case Preset() as preset:
            return _draft_preset(preset, options, max_model_len)
        case Trace() as trace:
            return _draft_trace(trace, options, max_model_len)
        case TextPrompts() as texts:
            return _draft_texts(texts, options, max_model_len, encode)


def _draft_preset(preset: Preset, options: DrawOptions, max_model_len: int) -> Draft:
    count = preset.num_prompts if options.num_prompts is None else options.num_prompts
    burstiness = preset.burstiness if options.burstiness is None else options.burstiness
    components = [_overridden(component, options) for component in preset.components]
    return Draft(
        outlines=draw_outlines(components, preset.sessions, count, options.seed, max_model_len),
        arrivals_s=unit_arrivals(count, burstiness, options.seed),
        burstiness=burstiness,
        default_loads=tuple(_renamed(load, burstiness) for load in preset.default_loads),
    )


def _draft_trace(trace: Trace, options: DrawOptions, max_model_len: int) -> Draft:
    rows = trace.rows[: _count(len(trace.rows), options, f"trace {trace.path}", "rows")]
    arrivals_s = [row.arrival_s * options.trace_scale for row in rows]
    base_rate = (len(rows) - 1) / arrivals_s[-1] if arrivals_s[-1] > 0 else math.inf
    return Draft(
        outlines=plain_outlines(
            [
                fit_context(LengthPair(row.prompt_tokens, row.output_tokens), max_model_len)
                for row in rows
            ]
        ),
        arrivals_s=arrivals_s,
        burstiness=1.0,
        default_loads=(Load("trace", base_rate),),
        own_times=True,
        base_rate=base_rate,
    )


def _draft_texts(
    texts: TextPrompts, options: DrawOptions, max_model_len: int, encode: Encode | None
) -> Draft:
    if encode is None:
        raise CbbenchError(
            f"prompt file {texts.path} needs a model's tokenizer; give a model that has one"
        )
    count = _count(len(texts.prompts), options, f"prompt file {texts.path}", "prompts")
    prompts = texts.prompts[:count]
    token_ids = [tuple(ids) for ids in encode([prompt.text for prompt in prompts])]
    for prompt, ids in zip(prompts, token_ids, strict=True):
        if not ids:
            raise CbbenchError(
                f"prompt file {texts.path}, line {prompt.line}: the model's tokenizer makes no "
                f"token of {prompt.text!r}; expected at least one"
            )
    burstiness = 1.0 if options.burstiness is None else options.burstiness
    return Draft(
        outlines=plain_outlines(
            [
                _fit_output(len(ids), options.output_len or prompt.max_tokens, max_model_len)
                for prompt, ids in zip(prompts, token_ids, strict=True)
            ]
        ),
        arrivals_s=unit_arrivals(count, burstiness, options.seed),
        burstiness=burstiness,
        default_loads=(all_at_once(), relative(0.7, burstiness)),
        token_ids=token_ids,
    )


def _fit_output(prompt: int, asked: int | None, max_model_len: int) -> LengthPair:
    """A text is never cut: the answer yields; a prompt too long stays, to be rejected as asked."""
    wanted = asked or DEFAULT_MAX_TOKENS
    output = min(wanted, max_model_len - prompt) if prompt < max_model_len else wanted
    return LengthPair(prompt, output, output_clipped=output != wanted)


def _overridden(component: Component, options: DrawOptions) -> Component:
    if options.input_len is not None:
        component = replace(component, prompt=around(options.input_len, options.range_ratio))
    if options.output_len is not None:
        component = replace(component, output=around(options.output_len, options.range_ratio))
    return component


def _renamed(load: AnyLoad, burstiness: float) -> AnyLoad:
    if isinstance(load, RelativeLoad):
        return relative(load.fraction_of_best, burstiness, load.max_concurrency)
    return load


def _count(available: int, options: DrawOptions, what: str, unit: str) -> int:
    """All of them, unless fewer are asked for."""
    asked = available if options.num_prompts is None else options.num_prompts
    if asked > available:
        raise CbbenchError(
            f"{what} has {available} {unit}, {asked} prompts were asked for; ask for fewer, "
            "or leave the number out to take all"
        )
    return asked


def _check_values(options: DrawOptions) -> None:
    if options.num_prompts is not None and options.num_prompts < 1:
        raise CbbenchError(f"{options.num_prompts} prompts make no workload; give a number >= 1")
    for length in (options.input_len, options.output_len):
        if length is not None:
            around(length, options.range_ratio)
    if options.input_len is None and options.output_len is None:
        _refuse_range_ratio(options)
    if options.burstiness is not None:
        check_burstiness(options.burstiness)
    if not 0 < options.trace_scale < math.inf:
        raise CbbenchError(
            f"a trace scale of {options.trace_scale:g} cannot be played; give a number > 0, "
            "where 2 takes twice as long"
        )


def _refuse(what: str, option: str, value: float | None) -> None:
    if value is not None:
        raise CbbenchError(
            f"{what} has its own {option}; got {value:g}; leave it out or use a preset"
        )


def _refuse_range_ratio(options: DrawOptions) -> None:
    if options.range_ratio:
        raise CbbenchError(
            f"a range ratio of {options.range_ratio:g} spreads nothing; leave it out, "
            "or give a preset an input or output length with it"
        )


def _refuse_trace_scale(spec: str, options: DrawOptions) -> None:
    if options.trace_scale != 1.0:
        raise CbbenchError(
            f"workload {spec!r} has no times of its own to scale by {options.trace_scale:g}; "
            "leave the trace scale out or give a request rate"
        )
