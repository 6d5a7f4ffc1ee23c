"""A check in plain lines, and in Markdown for a pull request. Pure."""

from __future__ import annotations

from typing import Final

from harness.compare.matching import case_name, rate_text
from harness.gate.check import Checked, Finding
from harness.gate.options import CheckOptions
from harness.gate.side import Side
from harness.show.report.markup import escaped, markdown_table
from harness.show.report.words import METRIC_WORDS, MISSING, metric_value, number, plain
from harness.statistics import LEAST_ROUNDS

_WORDS: Final = {"pass": "PASS", "regression": "REGRESSION", "inconclusive": "INCONCLUSIVE"}
_UNPAIRED: Final = (
    "Unpaired: the run and its baseline were not made in turns. What changed between them as a "
    "whole, such as a warmer machine, is in the ratio and not in the interval."
)
_RELATIVE: Final = (
    "Unpaired: each round is divided by {reference} of the same round and run, which takes out "
    "what the machine did to both; the run and its baseline were not made in turns."
)
_MEANING: Final = {
    "pass": "pass: nothing that gates lies past its limit",
    "regression": "regression: something that gates lies wholly past its limit",
    "inconclusive": "inconclusive: nothing is known to be worse, and not all is known to be fine",
}


def check_text(checked: Checked, width: int | None = None, encoding: str = "utf-8") -> str:
    """A line a finding, whatever the width; what `encoding` lacks is shown as an escape."""
    lines = [*map(plain, _head(checked)), ""]
    lines += [_line(finding, checked.options) for finding in checked.findings if finding.gates]
    advisory = advisory_lines(checked)
    if advisory:
        lines += ["", "advisory, not gated:", *(f"  {line}" for line in advisory)]
    lines += ["", *(f"note: {plain(note)}" for note in checked.notes)]
    lines += [f"{_MEANING[checked.outcome]} (exit code {checked.exit_code})"]
    return "\n".join(lines).encode(encoding, "backslashreplace").decode(encoding) + "\n"


def check_markdown(checked: Checked) -> str:
    """A table of what gates, the rest folded away."""
    titles = ["", "engine", "load", "metric", "baseline", "run", "ratio", "95% interval", "limit"]
    gating = [finding for finding in checked.findings if finding.gates]
    others = [finding for finding in checked.findings if not finding.gates]
    lines = [f"## cbbench check: {checked.outcome}", ""]
    lines += markdown_table(titles, [_row(finding, checked.options) for finding in gating])
    reasons = [
        f"- {escaped(_name(finding))}: {escaped(finding.decision.reason)}"
        for finding in gating
        if finding.decision.reason
    ]
    lines += ["", *reasons] if reasons else []
    if others:
        table = markdown_table(titles, [_row(finding, checked.options) for finding in others])
        lines += ["", "<details><summary>Advisory, not gated</summary>", "", *table]
        lines += ["", "</details>"]
    lines += ["", *(f"- {escaped(line)}" for line in (*_head(checked), *checked.notes))]
    return "\n".join(lines) + "\n"


def advisory_lines(checked: Checked) -> list[str]:
    """What does not gate; how many rounds would decide it is left out."""
    return [_line(finding, checked.options) for finding in checked.findings if not finding.gates]


def finding_text(finding: Finding, relative_to: str | None) -> str:
    """Ratio, interval, rounds, limit and the reason, as far as there are any."""
    decision = finding.decision
    parts = []
    if decision.ratio is not None:
        parts.append(f"{number(decision.ratio)}x of the baseline")
        if decision.low is not None:
            parts.append(f"95% interval {_interval(finding)}")
        parts.append(f"limit {number(decision.limit)}x")
    if decision.baseline_rounds and decision.current_rounds:
        baseline, current = (
            _value(finding, value, relative_to)
            for value in (decision.baseline_value, decision.current_value)
        )
        parts.append(
            f"{baseline} in {decision.baseline_rounds} rounds, now {current} in "
            f"{decision.current_rounds}"
        )
    reason = decision.reason if finding.gates or not parts else ""
    return plain("; ".join(filter(None, (", ".join(parts), reason))))


def _head(checked: Checked) -> list[str]:
    reference = checked.options.relative_to
    unpaired = _UNPAIRED if reference is None else _RELATIVE.format(reference=reference)
    where = "no part for this machine" if checked.baseline is None else checked.baseline.machine
    return [
        f"run: {checked.run.source.name} ({checked.run.machine})",
        f"baseline: {checked.baseline_name} ({where})",
        unpaired,
    ]


def _line(finding: Finding, options: CheckOptions) -> str:
    word = _WORDS[finding.decision.outcome].ljust(12)
    text = finding_text(finding, options.relative_to)
    return f"{word}  {plain(_name(finding))}: {text}"


def _name(finding: Finding) -> str:
    words = METRIC_WORDS.get(finding.metric, finding.metric)
    return f"{finding.engine} at {finding.load}, {words}"


def _row(finding: Finding, options: CheckOptions) -> list[str]:
    decision = finding.decision
    return [
        _WORDS[decision.outcome],
        escaped(finding.engine),
        escaped(finding.load),
        finding.metric,
        _value(finding, decision.baseline_value, options.relative_to),
        _value(finding, decision.current_value, options.relative_to),
        MISSING if decision.ratio is None else f"{number(decision.ratio)}x",
        _interval(finding),
        MISSING if decision.limit is None else f"{number(decision.limit)}x",
    ]


def _interval(finding: Finding) -> str:
    low, high = finding.decision.low, finding.decision.high
    return MISSING if low is None or high is None else f"{number(low)}-{number(high)}"


def _value(finding: Finding, value: float | None, relative_to: str | None) -> str:
    """A value with its unit; relative to an engine it is a bare factor."""
    if relative_to is None:
        return metric_value(finding.metric, value)
    return MISSING if value is None else f"{number(value)}x {relative_to}"


def baseline_told(side: Side, name: str) -> list[str]:
    """What `baseline update` wrote, and what speaks against it."""
    lines = [plain(f"{name} holds {side.source.name} for {side.machine}:")]
    for case in side.source.cases:
        told = (
            f"  {case_name(case)}: {len(case.rounds)} rounds, rate {rate_text(case.request_rate)}"
        )
        lines.append(plain(told))
        if len(case.rounds) < LEAST_ROUNDS:
            lines.append(f"  warning: a check needs {LEAST_ROUNDS} rounds; run with --repeats")
        if case.suspect:
            lines.append(f"  warning: SUSPECT rounds: {case.suspect} of {case.begun}")
    return lines
