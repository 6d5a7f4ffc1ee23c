"""The options of `cbbench run`, read from text into one frozen value or refused in a sentence.

Checks each option and what follows from two of them; touches no file and loads no model.
"""

from __future__ import annotations

import dataclasses
import math
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Final, TypeVar

from engines.api import CbbenchError
from engines.registry import BuildContext, EngineEntry, EngineSpec, parse_engines
from engines.settings import byte_size, natural, one_of, positive_int
from harness.looks import LOOKS
from harness.places import without_folders

DEFAULT_BUDGET_S: Final = 115.0
STDOUT: Final = "-"
_SECONDS: Final = {"": 1.0, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RunOptions:
    """The options as typed; `None` where one was left out."""

    engines: str
    workload: str
    model: str = "tiny"
    device: str = "auto"
    dtype: str = "auto"
    threads: str | None = None
    kv_memory: str = "512MiB"
    max_model_len: str | None = None
    client_processes: str = "1"
    num_prompts: str | None = None
    request_rate: str | None = None
    burstiness: str | None = None
    max_concurrency: str | None = None
    input_len: str | None = None
    output_len: str | None = None
    range_ratio: str = "0"
    trace_format: str = "azure"
    trace_scale: str = "1"
    seed: str = "0"
    goodput: tuple[str, ...] = ()
    num_warmups: str = "2"
    repeats: str | None = None
    budget: str | None = None
    until_ci: str | None = None
    order: str = "random"
    ignore_eos: bool = True
    skip_chat_template: bool = False
    save_outputs: bool = False
    check_outputs: bool = False
    save_plans: bool = False
    save_trace: bool = False
    strict: bool = False
    out: str | None = None
    json: str | None = None


@dataclass(frozen=True, slots=True)
class RunConfig:
    """What a run does. `budget_s` of `None`: it does not decide the number of rounds."""

    engines: tuple[EngineSpec, ...]
    context: BuildContext
    workload: str
    num_prompts: int | None
    request_rate: float | None
    burstiness: float | None
    max_concurrency: int | None
    input_len: int | None
    output_len: int | None
    range_ratio: float
    trace_format: str
    trace_scale: float
    seed: int
    goodput: str | None
    num_warmups: int
    repeats: int | None
    budget_s: float | None
    until_ci: float | None
    shuffled: bool
    ignore_eos: bool
    skip_chat_template: bool
    save_outputs: bool
    check_outputs: bool
    save_plans: bool
    save_trace: bool
    strict: bool
    out: Path | None
    json: str | None


def read_options(options: RunOptions, installed: Mapping[str, EngineEntry]) -> RunConfig:
    """Raises `CbbenchError` naming the option, what was given and what is expected."""
    repeats = _optional(options.repeats, "--repeats", positive_int)
    budget_s = _optional(options.budget, "--budget", seconds)
    until_ci = _optional(options.until_ci, "--until-ci", percentage)
    if budget_s is None and repeats is None and until_ci is None:
        budget_s = DEFAULT_BUDGET_S
    engines = _engines(options.engines, installed)
    if until_ci is not None:
        _check_looks(repeats, len(engines))
    return RunConfig(
        engines=engines,
        context=_context(options),
        workload=options.workload,
        num_prompts=_optional(options.num_prompts, "--num-prompts", positive_int),
        request_rate=_optional(options.request_rate, "--request-rate", rate),
        burstiness=_optional(options.burstiness, "--burstiness", rate),
        max_concurrency=_optional(options.max_concurrency, "--max-concurrency", positive_int),
        input_len=_optional(options.input_len, "--input-len", positive_int),
        output_len=_optional(options.output_len, "--output-len", positive_int),
        range_ratio=_read(options.range_ratio, "--range-ratio", fraction),
        trace_format=options.trace_format,
        trace_scale=_read(options.trace_scale, "--trace-scale", positive),
        seed=_read(options.seed, "--seed", natural),
        goodput=",".join(options.goodput) or None,
        num_warmups=_read(options.num_warmups, "--num-warmups", natural),
        repeats=repeats,
        budget_s=budget_s,
        until_ci=until_ci,
        shuffled=_read(options.order, "--order", one_of("random", "fixed")) == "random",
        ignore_eos=options.ignore_eos,
        skip_chat_template=options.skip_chat_template,
        save_outputs=options.save_outputs,
        check_outputs=options.check_outputs,
        save_plans=options.save_plans,
        save_trace=options.save_trace,
        strict=options.strict,
        out=None if options.out is None else Path(options.out),
        json=options.json,
    )


def _engines(text: str, installed: Mapping[str, EngineEntry]) -> tuple[EngineSpec, ...]:
    """Labels stand in every result file, so they name no folder, and specs hold no key."""
    specs = parse_engines(text, installed)
    for spec in specs:
        _check_key(spec)
    plain = [dataclasses.replace(spec, label=without_folders(spec.label)) for spec in specs]
    for one, other in combinations(plain, 2):
        if one.label == other.label:
            raise CbbenchError(
                f"two engines would both be named {one.label!r}; expected names of their own, "
                f"give them as in 'a={one.text},b={other.text}'"
            )
    return tuple(plain)


def _check_key(spec: EngineSpec) -> None:
    variable = str(spec.settings.get("api_key_env") or "")
    key = os.environ.get(variable, "").strip()
    texts = [value for value in spec.settings.values() if isinstance(value, str)]
    if key and any(key in re.split(r"[\s=:,'\"]+", text) for text in texts):
        raise CbbenchError(
            f"an engine's settings show the key that api_key_env={variable} names, and they are "
            "written into the results; put {key} in its place in a command, or let the server "
            "read it from its environment"
        )


def _check_looks(repeats: int | None, engines: int) -> None:
    """`--until-ci` needs a ratio, and ends at a look or at the most rounds that looks allow."""
    if engines < 2:
        raise CbbenchError("--until-ci is about a ratio of two engines; expected two or more")
    if repeats is not None and not LOOKS[0] <= repeats <= LOOKS[-1]:
        looks = ", ".join(map(str, LOOKS))
        raise CbbenchError(
            f"--repeats is {repeats} beside --until-ci, which looks after {looks} rounds; "
            f"expected {LOOKS[0]} to {LOOKS[-1]} as the most, or leave it out"
        )


def _context(options: RunOptions) -> BuildContext:
    return BuildContext(
        model=options.model,
        device=_read(options.device, "--device", one_of("auto", "cpu", "cuda")),
        dtype=_read(options.dtype, "--dtype", one_of("auto", "bfloat16", "float32", "float16")),
        threads=_optional(options.threads, "--threads", positive_int),
        kv_memory=_read(options.kv_memory, "--kv-memory", byte_size),
        max_model_len=_optional(options.max_model_len, "--max-model-len", positive_int),
        client_processes=_read(options.client_processes, "--client-processes", positive_int),
    )


def rate(text: str) -> float:
    """A finite number > 0, or `inf` in letters: an overflow is a slip of the hand."""
    return math.inf if text.lower() == "inf" else _finite(text, "a number > 0, or inf")


def positive(text: str) -> float:
    """A finite number > 0."""
    return _finite(text, "a number > 0")


def fraction(text: str) -> float:
    """0 <= r < 1."""
    expected = "a number r with 0 <= r < 1"
    try:
        value = float(text)
    except ValueError:
        raise ValueError(expected) from None
    if not 0 <= value < 1:
        raise ValueError(expected)
    return value


def percentage(text: str) -> float:
    """`5%` as 0.05; the sign is asked for, so that nobody writes 0.05 and means 5%."""
    expected = "a percentage above 0% and below 100%, such as 5%"
    if not text.endswith("%"):
        raise ValueError(expected)
    value = _finite(text[:-1], expected) / 100
    if value >= 1:
        raise ValueError(expected)
    return value


def seconds(text: str) -> float:
    """A time such as `110s`, `2m`, `1h` or a plain number of seconds."""
    digits = text.rstrip("abcdefghijklmnopqrstuvwxyz")
    expected = "a time such as 110s or 2m"
    unit = _SECONDS.get(text[len(digits) :].strip())
    if unit is None:
        raise ValueError(expected)
    return _finite(digits, expected) * unit


def settings_text(config: RunConfig) -> str:
    """Everything that was asked for, as one text: what a run's short hash is made of."""
    return repr(dataclasses.astuple(dataclasses.replace(config, out=None, json=None)))


def _finite(text: str, expected: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise ValueError(expected)
    return value


def _read(text: str, option: str, parse: Callable[[str], T]) -> T:
    try:
        return parse(text)
    except ValueError as error:
        raise CbbenchError(f"{option} is {text!r}; expected {error}") from error


def _optional(text: str | None, option: str, parse: Callable[[str], T]) -> T | None:
    return None if text is None else _read(text, option, parse)
