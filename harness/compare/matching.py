"""Which case of one result belongs to which of another, and what is left out and why.

Refuses what must not be compared: other requests, unknown requests that nobody asked to compare
all the same, and results that have no case in common. Computes no ratio.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from engines.api import CbbenchError
from harness.compare.case import Case, Rate, Source

_SHORT_HASH = 12
_SAME_RATE = 1e-3  # other tools tell theirs rounded, or as they reckoned it


@dataclass(frozen=True, slots=True)
class Matches:
    """Pairs (reference's case, other's case), and a sentence for each case that has no pair."""

    pairs: tuple[tuple[Case, Case], ...]
    left_out: tuple[str, ...]


def check_workloads(reference: Source, other: Source, *, unpaired: bool) -> None:
    """Raises `CbbenchError` unless both had the same requests, or nobody can know and `unpaired`.

    Two known hashes that differ are refused whatever was asked.
    """
    one, two = reference.workload_hash, other.workload_hash
    if one is not None and two is not None:
        if one != two:
            raise CbbenchError(
                f"{reference.name} and {other.name} had other requests "
                f"({_workload(reference)} and {_workload(other)}), so no ratio of them means "
                "anything; run both with the same workload, seed, lengths and number of prompts"
            )
        return
    if not unpaired:
        unknown = reference if one is None else other
        raise CbbenchError(
            f"{unknown.name} ({unknown.tool}) has no workload hash, so nobody can say whether it "
            "had the same requests; add --unpaired to compare it all the same"
        )


def match(reference: Source, other: Source) -> Matches:
    """Cases of the same load and engine; where each side has only one, these two.

    Raises `CbbenchError` when there is no pair.
    """
    pairs: list[tuple[Case, Case]] = []
    left_out: list[str] = []
    single = len(reference.cases) == len(other.cases) == 1
    for case in reference.cases:
        partner = other.cases[0] if single else _named(other.cases, case.load, case.engine)
        if partner is None:
            left_out.append(f"{case_name(case)}: only in {reference.name}")
        elif why := _different_load(reference, case, other, partner):
            left_out.append(f"{case_name(case)}: {why}")
        else:
            pairs.append((case, partner))
    taken = {id(partner) for _, partner in pairs}
    left_out += _only_in_other(reference, other, taken, single=single)
    if not pairs:
        raise _nothing_matches(reference, other, left_out)
    return Matches(tuple(pairs), tuple(left_out))


def case_name(case: Case) -> str:
    return f"{case.engine} at {case.load}"


def narrowed(source: Source, engine: str | None, load: str | None) -> Source:
    """Only the named engine and load, of a source that has several.

    Raises `CbbenchError` when it has several and none is named so.
    """
    cases = _chosen(source, source.cases, "engine", engine)
    cases = _chosen(source, cases, "load", load)
    return replace(source, cases=cases)


def _chosen(
    source: Source, cases: tuple[Case, ...], kind: str, wanted: str | None
) -> tuple[Case, ...]:
    names = list(dict.fromkeys(getattr(case, kind) for case in cases))
    if wanted is None or len(names) < 2:
        return cases
    if wanted not in names:
        raise CbbenchError(
            f"{source.name} has no {kind} {wanted!r}; expected one of {', '.join(names)}"
        )
    return tuple(case for case in cases if getattr(case, kind) == wanted)


def _named(cases: Iterable[Case], load: str, engine: str) -> Case | None:
    return next((c for c in cases if (c.load, c.engine) == (load, engine)), None)


def _different_load(a: Source, one: Case, b: Source, two: Case) -> str:
    """Why two cases were not pushed alike; of other tools only a rate that is known is asked."""
    is_ours = a.tool == b.tool == "cbbench"
    if not _same_rate(one.request_rate, two.request_rate, is_ours):
        return (
            f"its rate is {rate_text(one.request_rate)} in {a.name} and "
            f"{rate_text(two.request_rate)} in {b.name}; run both with the same --request-rate"
        )
    if is_ours and one.max_concurrency != two.max_concurrency:
        return (
            f"its concurrency is {one.max_concurrency} in {a.name} and {two.max_concurrency} in "
            f"{b.name}; run both with the same --max-concurrency"
        )
    return ""


def _same_rate(one: Rate, two: Rate, is_ours: bool) -> bool:
    if isinstance(one, float) and isinstance(two, float):
        return math.isclose(one, two, rel_tol=0 if is_ours else _SAME_RATE)
    return one == two or (not is_ours and None in (one, two))


def rate_text(rate: Rate) -> str:
    if rate is None:
        return "unknown"
    return "inf" if rate == "inf" else f"{rate:.6g} req/s"


def _only_in_other(
    reference: Source, other: Source, taken: set[int], *, single: bool
) -> Iterator[str]:
    for case in other.cases:
        known = single or _named(reference.cases, case.load, case.engine) is not None
        if id(case) not in taken and not known:
            yield f"{case_name(case)}: only in {other.name}"


def _nothing_matches(reference: Source, other: Source, left_out: Iterable[str]) -> CbbenchError:
    for source in (reference, other):
        if not source.cases:
            return CbbenchError(
                f"{source.name} has no result at all; it was ended before its first cell, run again"
            )
    return CbbenchError(
        f"{reference.name} and {other.name} have no engine and load in common: "
        f"{'; '.join(left_out)}; give equal labels, or choose with --engine and --load"
    )


def _workload(source: Source) -> str:
    short = (source.workload_hash or "")[:_SHORT_HASH]
    return f"{source.workload}, hash {short}" if source.workload else f"hash {short}"
