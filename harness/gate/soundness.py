"""What is decided of a case before any number of it is looked at.

An engine that failed is a regression; numbers of another load, of a cut run, or held against what
is not sound itself, decide nothing.
"""

from __future__ import annotations

from typing import Final

from harness.compare.case import Case, Source
from harness.compare.matching import rate_text
from harness.gate.decide import Decision
from harness.gate.options import CheckOptions

LEAST_OK: Final = 0.99  # METRICS: more than 1% not ok is told apart


def failed(run: Source, case: Case) -> Decision | None:
    """A regression whatever it is held against."""
    if case.ok == 0:
        return _regression(f"nothing was ok: 0 of {case.offered} requests succeeded")
    told = run.failures.get(case.engine)
    if case.broken:
        why = f" ({told})" if told else ""
        return _regression(
            f"its engine broke down in {case.broken} of {case.begun} rounds{why}; see its log"
        )
    if told:
        return _regression(f"its engine failed after {len(case.rounds)} rounds ({told})")
    return None


def beforehand(
    baseline: Source, theirs: Case, run: Source, mine: Case, options: CheckOptions
) -> Decision | None:
    """`None` where the numbers are to decide."""
    known_to_fail = failed(baseline, theirs)
    if (found := failed(run, mine)) and not (known_to_fail and mine.ok):
        return found
    reason = (
        (known_to_fail and f"of the baseline: {known_to_fail.reason}; make a sound one")
        or _not_whole(run, mine)
        or _other_load(theirs, mine)
        or not_sound(theirs, "the baseline", options)
    )
    if not reason and options.strict and mine.suspect:
        reason = f"SUSPECT rounds: {mine.suspect}; see its report for the reasons"
    return _inconclusive(reason) if reason else None


def by_reference(
    baseline: Source, run: Source, load: str, options: CheckOptions
) -> Decision | None:
    """A sick reference lifts every ratio to it, so on both sides it must be sound."""
    if options.relative_to is None:
        return None
    for source, whose in ((run, "this run"), (baseline, "the baseline")):
        case = reference_of(source, load, options)
        reason = not_sound(case, whose, options, of=f"{case.engine} in ")
        if found := failed(source, case):
            reason = f"{case.engine} in {whose}: {found.reason}"
        if reason:
            return _inconclusive(reason)
    return None


def reference_of(source: Source, load: str, options: CheckOptions) -> Case:
    key = (options.relative_to, load)
    return next(c for c in source.cases if (c.engine, c.load) == key)


def not_sound(case: Case, whose: str, options: CheckOptions, *, of: str = "") -> str:
    """Why nothing should be held against `case`; empty where nothing speaks against it."""
    if not case.ended:
        return f"no round of {of}{whose} came to its end; run again"
    if case.ok_share is not None and case.ok_share < LEAST_OK:
        return f"of {of}{whose} only {case.ok_share:.1%} of the requests were ok; see why"
    if options.strict and case.suspect:
        return f"SUSPECT rounds of {of}{whose}: {case.suspect}; see its report for the reasons"
    return ""


def _not_whole(run: Source, case: Case) -> str:
    if not case.ended:
        return "no round came to its end; run again"
    most = max(len(other.rounds) for other in run.cases if other.load == case.load)
    if len(case.rounds) < most:
        return f"it has {len(case.rounds)} rounds where others of this run have {most}; run again"
    return ""


def _other_load(theirs: Case, mine: Case) -> str:
    if theirs.request_rate != mine.request_rate:
        return (
            f"its rate is {rate_text(mine.request_rate)}, the baseline's "
            f"{rate_text(theirs.request_rate)}; run it with --request-rate, or choose --load"
        )
    if theirs.max_concurrency != mine.max_concurrency:
        return (
            f"its concurrency is {mine.max_concurrency}, the baseline's "
            f"{theirs.max_concurrency}; run it with the same --max-concurrency"
        )
    return ""


def _regression(reason: str) -> Decision:
    return Decision(outcome="regression", reason=reason)


def _inconclusive(reason: str) -> Decision:
    return Decision(outcome="inconclusive", reason=reason)
