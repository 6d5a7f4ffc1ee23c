"""The answer of `--check-outputs` in sentences, and as it stands in run.json. Decides nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from engines.api import JsonValue
from harness.outputs.findings import EXACT_TYPES, TOLERANCE, Finding, OutputCheck
from harness.records import CellKey

_TOLD: Final = 20  # differences in run.json; the rest is counted


def sentence(check: OutputCheck) -> str:
    """What was found, with the first difference: request, position, tokens."""
    untold = "".join(f"; {name} tells no token ids" for name in check.compared.untold)
    return _answer(check) + untold


def fault_sentences(check: OutputCheck) -> dict[CellKey, str]:
    """For each cell that a difference speaks against, its first one."""
    own: dict[CellKey, list[Finding]] = {}
    for finding in check.findings:
        for key in finding.at_fault:
            own.setdefault(key, []).append(finding)
    return {key: f"{_fault(found[0])}{_and_more(found)}" for key, found in own.items()}


def to_json(check: OutputCheck) -> dict[str, JsonValue]:
    """The run's setting `output_check`."""
    first = sorted(check.findings, key=lambda finding: not finding.at_fault)[:_TOLD]
    return {
        "status": check.status,
        "sentence": sentence(check),
        "dtype": check.dtype,
        "tolerance": TOLERANCE if check.dtype in EXACT_TYPES else None,
        "cells": check.compared.cells,
        "requests": check.compared.requests,
        "equal_tokens": check.compared.tokens,
        "untold": list(check.compared.untold),
        "num_differences": len(check.findings),
        "differences": [_finding_to_json(finding) for finding in first],
        "faults": [
            {"engine": key.engine, "load": key.load, "round": key.round, "sentence": text}
            for key, text in fault_sentences(check).items()
        ],
    }


def _answer(check: OutputCheck) -> str:
    compared = check.compared
    amount = f"{compared.requests} requests in {compared.cells} cells"
    match check.status:
        case "nothing compared":
            return "outputs: no request has two answers to set against each other"
        case "equal":
            return f"outputs are equal: {amount}, {compared.tokens} tokens"
        case "not judged":
            first = _told(check.of_kind("not judged")[0])
            return f"outputs differ and could not be judged ({check.trouble}): {first}"
        case "different":
            wrong = check.of_kind("wrong token", "wrong length")
            return f"outputs differ: {_told(wrong[0])}{_and_more(wrong)}"
        case "near-ties":
            return (
                f"outputs are equal up to near-ties ({amount}): {_parted(check.findings)}, where "
                f"both tokens are within {TOLERANCE:g} of the best logit's size; first "
                f"{_told(check.findings[0])}"
            )
        case "rounding":
            widest = max(max(f.judgement.behind) for f in check.findings if f.judgement)
            return (
                f"answers part, as rounding in {_type(check.dtype)} makes them (reported, no "
                f"failure): {_parted(check.findings)} of {amount}; first "
                f"{_told(check.findings[0])}; the largest logit difference at such a place is "
                f"{widest:.3g}"
            )


def _type(dtype: str) -> str:
    return "a type that no engine tells" if dtype == "unknown" else dtype


def _told(finding: Finding) -> str:
    """Request, position and tokens of one difference, and what the model says of it."""
    difference = finding.difference
    one, other = difference.tokens
    text = (
        f"request {difference.request_id!r}, answer position {difference.position} (from 0): "
        f"{_step(difference.reference, one)}, {_step(difference.other, other)}"
    )
    judgement = finding.judgement
    if judgement is None:
        return text
    behind = " and ".join(
        f"{token} lies {value:.3g} behind"
        for token, value in zip((one, other), judgement.behind, strict=True)
        if token != judgement.best
    )
    return (
        f"{text}; the model alone gives {judgement.best}, {behind} "
        f"(its type tells {judgement.resolution:.2g} apart there)"
    )


def _step(key: CellKey, token: int | None) -> str:
    what = "had ended" if token is None else f"gave token {token}"
    return f"{key.engine} ({key.load}, round {key.round}) {what}"


def _fault(finding: Finding) -> str:
    if finding.kind == "wrong length":
        return f"its answers and another's differ in length: {_told(finding)}"
    return f"its answers are not the model's: {_told(finding)}"


def _parted(findings: Sequence[Finding]) -> str:
    number = len({finding.difference.request_id for finding in findings})
    return f"{number} request{'s' if number > 1 else ''} parted"


def _and_more(findings: Sequence[Finding]) -> str:
    more = len({finding.difference.request_id for finding in findings}) - 1
    return f"; {more} more request{'s differ' if more > 1 else ' differs'}" if more else ""


def _finding_to_json(finding: Finding) -> dict[str, JsonValue]:
    difference, judgement = finding.difference, finding.judgement
    keys = (difference.reference, difference.other)
    return {
        "kind": finding.kind,
        "request_id": difference.request_id,
        "position": difference.position,
        "cells": [[key.engine, key.load, key.round] for key in keys],
        "tokens": list(difference.tokens),
        "best": None if judgement is None else judgement.best,
        "behind": None if judgement is None else list(judgement.behind),
        "told": _told(finding),
    }
