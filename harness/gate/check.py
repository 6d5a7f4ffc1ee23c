"""A run against a baseline: every case in every metric, and what follows for the exit code.

`selection` refuses what cannot be checked, `soundness` knows what is decided before any number is
looked at, `decide` decides on numbers; this module brings them together.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from harness.compare.case import Case, Source, Values
from harness.compare.metrics import direction_of
from harness.gate.baseline import Baseline
from harness.gate.decide import Decision, Outcome, decide
from harness.gate.dropped import with_dropped
from harness.gate.notes import ONLY_THE_CLIENTS, beside_the_numbers
from harness.gate.options import CheckOptions, check_limits, looked_at
from harness.gate.relative import relative_values
from harness.gate.selection import (
    case_pairs,
    check_run,
    check_same,
    chosen_cases,
    refuse,
    unknown_choice,
)
from harness.gate.side import Side
from harness.gate.soundness import beforehand, by_reference, failed, reference_of
from harness.statistics import Direction

PASS: Final = 0
REGRESSION: Final = 1
INCONCLUSIVE: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A metric of a case. Without `gates` it is shown and decides nothing."""

    engine: str
    load: str
    metric: str
    direction: Direction
    gates: bool
    decision: Decision


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """All findings, those that gate first. `baseline` is `None` for another kind of machine.

    `notes` are sentences on what a reader must know beside the numbers.
    """

    run: Side
    baseline_name: str
    baseline: Side | None
    options: CheckOptions
    findings: tuple[Finding, ...]
    notes: tuple[str, ...] = ()

    @property
    def outcome(self) -> Outcome:
        """The worst of what gates; a regression is worse than not knowing."""
        found = {finding.decision.outcome for finding in self.findings if finding.gates}
        order: tuple[Outcome, ...] = ("regression", "inconclusive", "pass")
        return next(outcome for outcome in order if outcome in found)

    @property
    def exit_code(self) -> int:
        return {"pass": PASS, "regression": REGRESSION, "inconclusive": INCONCLUSIVE}[self.outcome]


def check(run: Side, baseline: Baseline, options: CheckOptions) -> Checked:
    """Raises `CbbenchError` for what cannot be checked, naming each case and metric."""
    metrics = looked_at(options)
    check_limits(metrics, options)
    check_run(run.source)
    side = baseline.on(run.machine)
    for other in baseline.sides if side is None else (side,):
        check_same(run.source, other.source, metrics, baseline.name)
    if side is None:
        cases = chosen_cases(run.source, options)
        refuse(unknown_choice(run.source, cases, options))
        reason = _other_machine(run, baseline)
        found = [_undecided(run.source, case, metrics, reason) for case in cases]
        notes: list[str] = []
    else:
        pairs = case_pairs(run.source, side.source, metrics, options, baseline.name)
        found = [_findings(a, b, run.source, side.source, metrics, options) for a, b in pairs]
        told = [*pairs, *_references(pairs, side.source, run.source, options)]
        notes = list(beside_the_numbers(side.source, run.source, told))
        if run.machine.only_the_clients:
            notes.append(ONLY_THE_CLIENTS)
    flat = [finding for findings in found for finding in findings]
    return Checked(
        run=run,
        baseline_name=baseline.name,
        baseline=side,
        options=options,
        findings=tuple(sorted(flat, key=lambda finding: not finding.gates)),
        notes=tuple(notes),
    )


def _findings(
    theirs: Case,
    mine: Case,
    run: Source,
    baseline: Source,
    metrics: dict[str, bool],
    options: CheckOptions,
) -> Iterator[Finding]:
    why = beforehand(baseline, theirs, run, mine, options)
    why = why or by_reference(baseline, run, mine.load, options)
    for name, gates in metrics.items():
        direction = direction_of(name)
        if why is None:
            values = _values(baseline, theirs, name, options), _values(run, mine, name, options)
            decision = decide(*values, direction, options.limits)
            decision = with_dropped(decision, mine, name, direction)
        else:
            decision = why
        yield _finding(mine, name, gates, decision)


def _values(source: Source, case: Case, metric: str, options: CheckOptions) -> Values:
    own = case.values.get(metric, ())
    if options.relative_to is None:
        return own
    return relative_values(case, reference_of(source, case.load, options), metric)


def _references(
    pairs: Sequence[tuple[Case, Case]], baseline: Source, run: Source, options: CheckOptions
) -> list[tuple[Case, Case]]:
    if options.relative_to is None:
        return []
    return [
        (reference_of(baseline, load, options), reference_of(run, load, options))
        for load in dict.fromkeys(mine.load for _, mine in pairs)
    ]


def _undecided(run: Source, case: Case, metrics: dict[str, bool], reason: str) -> Iterator[Finding]:
    decision = failed(run, case) or Decision(outcome="inconclusive", reason=reason)
    for name, gates in metrics.items():
        yield _finding(case, name, gates, decision)


def _finding(case: Case, metric: str, gates: bool, decision: Decision) -> Finding:
    return Finding(
        engine=case.engine,
        load=case.load,
        metric=metric,
        direction=direction_of(metric),
        gates=gates,
        decision=decision,
    )


def _other_machine(run: Side, baseline: Baseline) -> str:
    known = "; ".join(str(side.machine) for side in baseline.sides)
    return (
        f"the baseline is of another kind of machine ({known or 'none'}) than this one "
        f"({run.machine}); make one here with cbbench baseline update"
    )
