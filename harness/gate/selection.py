"""What of a run is checked against what of a baseline, or why nothing can be.

Everything that is missing is named at once: an exit code of 2 must never read as slower, nor as
fine. Decides nothing about numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from engines.api import CbbenchError
from harness.compare.case import Case, Source
from harness.compare.matching import case_name
from harness.gate.options import CheckOptions

_GOODPUT: Final = ("goodput_req_s", "attainment")


def check_run(source: Source) -> None:
    """Raises `CbbenchError` for a run without a request, which is no slow run."""
    empty = [f" in '{case_name(case)}'" for case in source.cases if not case.offered]
    if empty or not source.cases:
        raise CbbenchError(
            f"{source.name} has 0 requests{','.join(empty)}, so there is nothing to check; see why "
            "its run ended, and run again"
        )


def check_same(run: Source, other: Source, metrics: dict[str, bool], name: str) -> None:
    """The requests, the model and, where it is asked, the bounds of goodput."""
    if run.workload_hash is None or run.workload_hash != other.workload_hash:
        raise CbbenchError(
            f"the baseline {name} had other requests ({_workload(other)}) than {run.name} "
            f"({_workload(run)}); run that workload, or update the baseline"
        )
    models = [source.facts.get("model") for source in (run, other)]
    if models[0] != models[1]:
        raise CbbenchError(
            f"the baseline {name} is of the model {models[1]}, {run.name} of {models[0]}; run "
            "that model, or update the baseline"
        )
    if run.goodput != other.goodput and any(name in metrics for name in _GOODPUT):
        raise CbbenchError(
            f"the baseline {name} was held to --goodput {other.goodput}, {run.name} to "
            f"{run.goodput}; give the same bounds"
        )


def chosen_cases(source: Source, options: CheckOptions) -> list[Case]:
    """What is to be checked of a source: its cases without the reference's."""
    return [
        case
        for case in source.cases
        if case.engine != options.relative_to
        if options.engine in (None, case.engine)
        if options.load in (None, case.load)
    ]


def unknown_choice(source: Source, cases: Sequence[Case], options: CheckOptions) -> list[str]:
    """What is wrong with the choice, seen from one side."""
    wrong = []
    if options.relative_to is not None:
        with_reference = {case.load for case in source.cases if case.engine == options.relative_to}
        wrong += [
            f"{source.name} has no case '{options.relative_to} at {load}' to be relative to"
            for load in dict.fromkeys(case.load for case in cases)
            if load not in with_reference
        ]
    if not cases:
        known = ", ".join(f"'{case_name(case)}'" for case in source.cases)
        wrong.append(f"{source.name} has no case that was asked for; it has {known or 'none'}")
    return wrong


def case_pairs(
    run: Source, baseline: Source, metrics: dict[str, bool], options: CheckOptions, name: str
) -> list[tuple[Case, Case]]:
    """(baseline's case, run's case). Raises with every case and metric that one side lacks."""
    mine, theirs = chosen_cases(run, options), chosen_cases(baseline, options)
    wrong = unknown_choice(run, mine, options) + unknown_choice(baseline, theirs, options)
    if mine and theirs:
        wrong += _lacking(f"the baseline {name}", baseline, mine, theirs)
        wrong += _lacking(run.name, run, theirs, mine)
    wrong += [
        f"the baseline {name} has no metric '{metric}' of {case_name(case)}"
        for case in theirs
        for metric, gates in metrics.items()
        if gates and metric not in case.values
    ]
    refuse(wrong)
    by_key = {(case.engine, case.load): case for case in theirs}
    return [(by_key[case.engine, case.load], case) for case in mine]


def _lacking(
    name: str, source: Source, wanted: Sequence[Case], there: Sequence[Case]
) -> Iterator[str]:
    known = {(case.engine, case.load) for case in there}
    for case in wanted:
        if (case.engine, case.load) not in known:
            why = source.failures.get(case.engine)
            yield f"{name} has no case '{case_name(case)}'" + (f" ({why})" if why else "")


def refuse(wrong: Sequence[str]) -> None:
    """Raises `CbbenchError` with all that is wrong, if anything is."""
    if wrong:
        raise CbbenchError(
            f"{'; '.join(wrong)}; update the baseline with a run of the same engines and loads, or "
            "choose with --engine and --load"
        )


def _workload(source: Source) -> str:
    return f"{source.workload}, hash {(source.workload_hash or 'unknown')[:12]}"
