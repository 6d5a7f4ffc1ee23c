"""A check as JUnit XML, which every CI system shows: a test case for each metric that gates.

A regression is a failure. What is inconclusive is skipped with its reason: it neither passed nor
failed, and the exit code says so too. What does not gate is in the suite's output.
"""

from __future__ import annotations

from xml.etree import ElementTree

from harness.gate.check import Checked, Finding
from harness.show.gate import advisory_lines, finding_text
from harness.show.report.words import plain


def junit_text(checked: Checked) -> str:
    gating = [finding for finding in checked.findings if finding.gates]
    outcomes = [finding.decision.outcome for finding in gating]
    suite = ElementTree.Element(
        "testsuite",
        name=f"cbbench check {plain(checked.run.source.name)}",
        tests=str(len(gating)),
        failures=str(outcomes.count("regression")),
        errors="0",
        skipped=str(outcomes.count("inconclusive")),
    )
    for finding in gating:
        suite.append(_case(finding, checked))
    output = ElementTree.SubElement(suite, "system-out")
    output.text = "\n".join((*advisory_lines(checked), *map(plain, checked.notes)))
    root = ElementTree.Element("testsuites")
    root.append(suite)
    ElementTree.indent(root, " ")
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _case(finding: Finding, checked: Checked) -> ElementTree.Element:
    case = ElementTree.Element(
        "testcase",
        classname=plain(f"{finding.engine} at {finding.load}"),
        name=finding.metric,
    )
    tag = {"regression": "failure", "inconclusive": "skipped"}.get(finding.decision.outcome)
    text = finding_text(finding, checked.options.relative_to)
    if tag is not None:
        ElementTree.SubElement(case, tag, message=text)
    else:
        ElementTree.SubElement(case, "system-out").text = text
    return case
