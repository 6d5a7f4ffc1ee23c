"""The baseline file: its form, its reading as data from outside, its text. Decides nothing.

Each machine's part holds each round's values and a digest against slips of the hand. Numbers have
six figures and a metric has a line, so that a change reads as one in a review.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from pydantic import ConfigDict, TypeAdapter, ValidationError, with_config

from engines.api import CbbenchError
from harness.compare.case import Case, Rate, Source, Values
from harness.compare.inputs import read_text
from harness.gate.machine import Machine
from harness.gate.side import Side
from harness.records.encoding import strict_json
from harness.results.digest import DIGEST, digest_of

BASELINE_VERSION: Final = 1
VERSION_KEY: Final = "baseline_version"
_FIGURES: Final = 6
# Enough to gate in, few enough to read.
STORED: Final = (
    "output_throughput_tok_s",
    "request_throughput_req_s",
    "total_throughput_tok_s",
    "goodput_req_s",
    "attainment",
    *(
        f"{sample}.{summary}"
        for sample in ("ttft_s", "tpot_s", "itl_s", "e2e_s", "max_stall_s")
        for summary in ("p50", "p95", "p99")
    ),
    "max_stall_s.max",
    "preemptions.total",
)


@with_config(ConfigDict(extra="ignore", allow_inf_nan=False))
@dataclass(frozen=True, slots=True, kw_only=True)
class StoredCase:
    engine: str
    load: str
    request_rate: Rate
    max_concurrency: int | None
    rounds: tuple[int, ...]
    offered: int
    ok: int
    suspect: int
    facts: Mapping[str, str]
    values: Mapping[str, Values]


@with_config(ConfigDict(extra="ignore"))
@dataclass(frozen=True, slots=True, kw_only=True)
class StoredSide:
    machine: Machine
    facts: Mapping[str, str]
    cases: tuple[StoredCase, ...]
    digest: str


@with_config(ConfigDict(extra="ignore"))
@dataclass(frozen=True, slots=True, kw_only=True)
class StoredBaseline:
    workload: str | None
    workload_hash: str
    goodput: str | None
    machines: tuple[StoredSide, ...]


def json_object(path: Path) -> dict[str, Any]:
    """The file's content; empty when it is JSON but no object."""
    try:
        value = json.loads(read_text(path))
    except (ValueError, RecursionError) as error:
        raise _unusable(path, f"it is not JSON ({error})") from None
    return value if isinstance(value, dict) else {}


def read_stored(path: Path) -> StoredBaseline:
    """Raises `CbbenchError` for another version, a missing part, or one changed by hand."""
    content = json_object(path)
    if content.get(VERSION_KEY) != BASELINE_VERSION:
        raise _unusable(path, f"its {VERSION_KEY} is {content.get(VERSION_KEY)!r}")
    try:
        stored = TypeAdapter(StoredBaseline).validate_python(content)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise _unusable(path, f"{where}: {first['msg']}") from None
    for part, side in zip(content["machines"], stored.machines, strict=True):
        if side.digest != _digest(path, part):
            raise _unusable(path, f"its part of {side.machine} was changed after it was written")
        _check_lengths(path, side)
    return stored


def sides_of(stored: StoredBaseline, name: str) -> Iterator[Side]:
    for part in stored.machines:
        source = Source(
            name,
            "cbbench",
            stored.workload,
            stored.workload_hash,
            tuple(_case(case) for case in part.cases),
            part.facts,
            stored.goodput,
        )
        yield Side(source, part.machine)


def baseline_text(newest: Side, others: Iterable[Side]) -> str:
    """The file with the part of each machine; what they have in common is `newest`'s."""
    content = {
        VERSION_KEY: BASELINE_VERSION,
        "workload": newest.source.workload,
        "workload_hash": newest.source.workload_hash,
        "goodput": newest.source.goodput,
        "machines": [_part(side) for side in (*others, newest)],
    }
    return _lines(content) + "\n"


def _part(side: Side) -> dict[str, Any]:
    part = {
        "machine": asdict(side.machine),
        "facts": dict(side.source.facts),
        "cases": [_plain_case(case) for case in side.source.cases],
    }
    plain: dict[str, Any] = strict_json(part)
    return plain | {DIGEST: digest_of(plain)}


def _plain_case(case: Case) -> dict[str, Any]:
    return {
        "engine": case.engine,
        "load": case.load,
        "request_rate": case.request_rate,
        "max_concurrency": case.max_concurrency,
        "rounds": list(case.rounds),
        "offered": case.offered,
        "ok": case.ok,
        "suspect": case.suspect,
        "facts": dict(case.facts),
        "values": {name: [_short(v) for v in case.values[name]] for name in STORED},
    }


def _case(stored: StoredCase) -> Case:
    return Case(
        engine=stored.engine,
        load=stored.load,
        request_rate=stored.request_rate,
        max_concurrency=stored.max_concurrency,
        rounds=stored.rounds,
        values=stored.values,
        offered=stored.offered,
        ok=stored.ok,
        suspect=stored.suspect,
        ok_share=stored.ok / stored.offered if stored.offered else None,
        facts=stored.facts,
    )


def _short(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.{_FIGURES}g}")


def _lines(value: Any, indent: int = 0) -> str:
    nested = value.values() if isinstance(value, dict) else value
    if not isinstance(value, dict | list) or not any(isinstance(v, dict | list) for v in nested):
        return json.dumps(value, allow_nan=False)
    margin, end = "\n" + " " * (indent + 1), "\n" + " " * indent
    if isinstance(value, dict):
        items = [f"{json.dumps(key)}: {_lines(v, indent + 1)}" for key, v in value.items()]
        return "{" + margin + f",{margin}".join(items) + end + "}"
    return "[" + margin + f",{margin}".join(_lines(v, indent + 1) for v in value) + end + "]"


def _check_lengths(path: Path, side: StoredSide) -> None:
    for case in side.cases:
        for name, values in case.values.items():
            if len(values) != len(case.rounds):
                raise _unusable(path, f"{name} of {case.engine} has {len(values)} values")


def _digest(path: Path, part: Mapping[str, Any]) -> str:
    try:
        return digest_of(part)
    except (ValueError, RecursionError) as error:
        raise _unusable(path, f"it holds what no digest is of ({error})") from None


def _unusable(path: Path, why: str) -> CbbenchError:
    return CbbenchError(
        f"cannot use the baseline {path}: {why}; make it anew with cbbench baseline update"
    )
