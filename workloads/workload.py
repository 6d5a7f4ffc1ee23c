"""A workload: the requests of a run, drawn once, hashed, and handed equally to every engine.

Brings together arrivals, lengths, prompts, traces and presets. Does not decide how fast the
requests arrive (`loads`) and does not hand them out (`sources`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from engines.api import JsonValue, ModelInfo, Request
from workloads.loads import AnyLoad, Load, RelativeLoad, at_load

__all__ = [
    "AnyLoad",
    "Encode",
    "Load",
    "ModelLimits",
    "RelativeLoad",
    "Workload",
    "WorkloadConfig",
    "at_load",
    "draw",
    "fresh_prompts",
    "open_workload",
    "warmup_requests",
]

Encode = Callable[[list[str]], list[list[int]]]


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

    `base_rate` is the mean rate of those times: 1 for drawn arrivals, the trace's own otherwise.
    `clipped` counts the requests whose `prompt` or `output` length had to be changed.
    """

    name: str
    seed: int
    requests: tuple[Request, ...]
    hash: str
    own_times: bool
    base_rate: float
    burstiness: float
    settings: Mapping[str, JsonValue]
    clipped: Mapping[str, int]
    default_loads: tuple[AnyLoad, ...]


@dataclass(frozen=True, slots=True)
class WorkloadConfig:
    """An opened workload (a preset, a trace or a file of prompts), read but not yet drawn."""

    name: str
    description: str


def open_workload(spec: str, *, trace_format: str = "azure") -> WorkloadConfig:
    """Opens a preset's name, a preset file `PATH.toml`, `trace:PATH` or `jsonl:PATH`.

    Raises `CbbenchError` for an unknown preset and for a file that cannot be read or understood.
    """
    raise NotImplementedError


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

    `encode` turns texts into token ids and is needed for `jsonl:` only. `trace_scale` stretches a
    trace's times: 2 takes twice as long.
    """
    raise NotImplementedError


def warmup_requests(workload: Workload, n: int, limits: ModelLimits) -> list[Request]:
    """`n` requests of the same length mix with other ids and other tokens, all at t0."""
    raise NotImplementedError


def fresh_prompts(workload: Workload, generation: int, limits: ModelLimits) -> Workload:
    """The same lengths and arrivals with token ids that no other generation has.

    For engines whose prefix cache cannot be emptied between rounds. Generation 0 is the workload.
    """
    raise NotImplementedError
