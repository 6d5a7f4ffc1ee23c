"""What run.json holds, and its reading back as data from outside. No computing, no folders."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import TypeAdapter, ValidationError

from engines.api import CbbenchError
from harness.metrics.results import CellResult, Quantiles
from harness.records.encoding import strict_json
from harness.results.digest import DIGEST, digest_of
from harness.statistics import CONFIDENCE, Answer, Direction

SCHEMA_VERSION: Final = 1
Kind = Literal["engines", "scheduler", "runtime", "memory"]


@dataclass(frozen=True, slots=True)
class Comparison:
    """engine / baseline in one metric at one load, paired by round.

    `kind` says what the two differ in: `scheduler`, `runtime` or `memory` where they differ in
    nothing else but `also_different`, else just two `engines`. The two values are medians over
    the rounds. `confidence` is the interval's own: 0.95, or more where rounds ended at a look
    (see `harness.looks`). For the rest see `harness.statistics.PairedRatio`.
    """

    kind: Kind
    load: str
    request_class: str | None
    metric: str
    direction: Direction
    baseline: str
    engine: str
    baseline_value: float | None
    engine_value: float | None
    rounds: int
    ratio: float | None
    low: float | None
    high: float | None
    answer: Answer | None
    detectable: float | None
    note: str
    also_different: tuple[str, ...] = ()
    confidence: float = CONFIDENCE


@dataclass(frozen=True, slots=True)
class EngineSummary:
    """An engine of the run with every setting in force, as it described itself."""

    spec: str
    name: str
    settings: Mapping[str, Any]
    max_model_len: int
    slots: int | None
    kv_tokens: int | None = None
    model: Mapping[str, Any] | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class WorkloadSummary:
    """What was offered to each engine in each cell; `output_tokens` as scheduled."""

    requests: int
    prompt_tokens: Quantiles
    output_tokens: Quantiles
    classes: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class TransportCost:
    """What HTTP added to `engine`: `served` minus in process, the median over paired rounds."""

    load: str
    engine: str
    served: str
    rounds: int
    ttft_p50_s: float | None
    tpot_p50_s: float | None
    e2e_p50_s: float | None
    output_throughput_tok_s: float | None


@dataclass(frozen=True, slots=True)
class RunFile:
    """run.json. Keys that this version does not know are passed over."""

    schema_version: int
    workload_hash: str | None
    environment: Mapping[str, Any]
    settings: Mapping[str, Any]
    results: tuple[CellResult, ...]
    comparisons: tuple[Comparison, ...]
    engines: Mapping[str, EngineSummary] = field(default_factory=dict)
    workload: WorkloadSummary | None = None
    transport: tuple[TransportCost, ...] = ()

    def loads(self) -> list[str]:
        """Load names in the order they were run, as far as the settings tell."""
        described = _listed(self.settings.get("loads"))
        told = [str(load["name"]) for load in described if isinstance(load, dict) if "name" in load]
        found = dict.fromkeys(result.load for result in self.results)
        return [name for name in told if name in found] + [n for n in found if n not in told]

    def labels(self) -> list[str]:
        """Engine labels in the order they were given, as far as the settings tell."""
        told = [str(label) for label in _listed(self.settings.get("engine_order"))]
        found = dict.fromkeys(result.engine for result in self.results)
        return [name for name in told if name in found] + [n for n in found if n not in told]

    def cells(self, engine: str, load: str) -> list[CellResult]:
        """One engine's rounds at one load, in order."""
        chosen = [r for r in self.results if r.engine == engine and r.load == load]
        return sorted(chosen, key=lambda result: result.round)

    def measured(self, engine: str, load: str) -> list[CellResult]:
        """Those of its rounds that its numbers are taken from."""
        return finished_or_all(self.cells(engine, load))


def _listed(value: Any) -> Sequence[Any]:
    """A setting that should be a list; settings are whatever a version, or a hand, wrote."""
    return value if isinstance(value, list | tuple) else ()


def finished_or_all(cells: Sequence[CellResult]) -> list[CellResult]:
    """The cells that came to their own end; where none did, all that there is."""
    return [cell for cell in cells if cell.finished] or list(cells)


def unfinished_note(number: int, *, kept: bool) -> str:
    """What became of rounds that did not end; `kept` where there are no others."""
    if not number:
        return ""
    rounds = f"{number} unfinished round{'s' if number > 1 else ''}"
    return f"only {rounds}" if kept else f"{rounds} left out"


def run_to_json(run: RunFile) -> str:
    """Strict JSON, indented by one so that a change shows as a line, with its own digest."""
    content: dict[str, Any] = strict_json(asdict(run))
    sealed = content | {DIGEST: digest_of(content)}
    return json.dumps(sealed, allow_nan=False, indent=1) + "\n"


def run_from_json(text: str, path: Path) -> RunFile:
    """Raises `CbbenchError` for another schema_version, a file that is no run.json, or an edit."""
    try:
        value = json.loads(text, parse_constant=_refuse_constant)
        found_digest = digest_of(value) if isinstance(value, dict) else None
    except (ValueError, RecursionError) as error:
        raise _unreadable(path, f"it is not JSON ({error})") from None
    if not isinstance(value, dict) or "schema_version" not in value:
        raise _unreadable(path, "it has no schema_version")
    found = value["schema_version"]
    if found != SCHEMA_VERSION:
        raise CbbenchError(
            f"{path} has schema_version {found!r}, this cbbench reads {SCHEMA_VERSION}; "
            "read it with the version that wrote it"
        )
    if value.get(DIGEST) != found_digest:
        raise _unreadable(path, "it was changed after it was written (its digest does not fit)")
    try:
        return TypeAdapter(RunFile).validate_python(value)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise _unreadable(path, f"{where}: {first['msg']}") from None


def _unreadable(path: Path, why: str) -> CbbenchError:
    return CbbenchError(
        f"cannot use {path}: {why}; expected a run.json that cbbench wrote. Take it away and call "
        "cbbench report with its folder, which writes it anew from the raw rows"
    )


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")
