"""A check on paper: all forms say the same, and no outside text reads as markup."""

from __future__ import annotations

import json
from xml.etree import ElementTree

import pytest

from harness.gate.baseline import read_baseline
from harness.gate.check import check
from harness.gate.encoding import checked_to_json
from harness.gate.junit import junit_text
from harness.gate.limits import Limits
from harness.gate.options import CheckOptions
from harness.gate.side import read_side
from harness.show.gate import check_markdown, check_text

FIVE = [10.0, 10.1, 9.9, 10.05, 9.95]
METRICS = ("output_throughput_tok_s", "preemptions.total")


@pytest.fixture
def found(make_run):
    """Of two engines one is slower, and nobody knows about preemptions."""
    base = make_run("base", {"a[/cb]|<b>": FIVE, "z": FIVE})
    run = make_run("run", {"a[/cb]|<b>": [v * 0.8 for v in FIVE], "z": FIVE})
    options = CheckOptions(metrics=METRICS, limits=Limits(0.05))
    return check(read_side(run), read_baseline(base), options)


def test_text_tells_each_finding_the_outcome_and_that_it_is_unpaired(found):
    lines = check_text(found).splitlines()
    name = "a[/cb]|<b> at all-at-once"
    assert any(
        line.startswith(f"REGRESSION    {name}, output tokens per second: 0.800x of the baseline, ")
        and line.endswith("limit 0.950x, 10.0 in 5 rounds, now 8.00 in 5")
        for line in lines
    )
    assert any(line.startswith("PASS          z at all-at-once, output") for line in lines)
    assert f"INCONCLUSIVE  {name}, preemptions: the baseline has no value of it" in lines
    assert any(line.startswith("Unpaired: ") for line in lines)
    assert any(line.startswith("  REGRESSION    a") and "p95 TTFT" in line for line in lines)
    assert lines[-1].endswith("(exit code 1)")


def test_advice_on_rounds_is_given_for_what_gates_alone(make_run):
    noisy = make_run("noisy", {"e": [10.0, 14.0, 8.0, 12.0, 9.0]})
    options = CheckOptions(metrics=("output_throughput_tok_s",), limits=Limits(0.05))
    text = check_text(check(read_side(noisy), read_baseline(noisy), options))
    gating, advisory = text.split("advisory")
    assert "rounds vary by" in gating
    assert "INCONCLUSIVE  e at all-at-once, p95 TTFT" in advisory
    assert "rounds vary by" not in advisory


def test_text_is_plain_in_ascii(found):  # V2, V5
    check_text(found, 20, "ascii").encode("ascii")
    assert "\x1b" not in check_text(found)


def test_markdown_shows_outside_text_literally(found):  # V1
    text = check_markdown(found)
    assert text.startswith("## cbbench check: regression\n")
    assert "| REGRESSION | a\\[/cb\\]\\|\\<b\\> | all-at-once | output_throughput_tok_s |" in text
    assert "<b>" not in text
    assert "- z at all-at-once, preemptions: the baseline has no value of it" in text
    assert "<details><summary>Advisory" in text


def test_junit_counts_failures_and_skips(found):
    suite = ElementTree.fromstring(junit_text(found)).find("testsuite")
    counts = {name: suite.get(name) for name in ("tests", "failures", "errors", "skipped")}
    assert counts == {"tests": "4", "failures": "1", "errors": "0", "skipped": "2"}
    cases = {(c.get("classname"), c.get("name")): c for c in suite.iter("testcase")}
    failed = cases["a[/cb]|<b> at all-at-once", "output_throughput_tok_s"].find("failure")
    assert "0.800x of the baseline" in failed.get("message")
    assert cases["z at all-at-once", "preemptions.total"].find("skipped") is not None
    assert cases["z at all-at-once", "output_throughput_tok_s"].find("failure") is None
    assert "p95 TTFT" in suite.find("system-out").text


def test_junit_is_well_formed_whatever_a_label_holds(make_run):
    run = make_run("run", {"a\x00\x1b&\"'": FIVE})
    options = CheckOptions(metrics=METRICS, limits=Limits(0.05))
    text = junit_text(check(read_side(run), read_baseline(run), options))
    assert ElementTree.fromstring(text).find(".//testcase").get("classname").startswith("a\\x00")


def test_json_is_strict_and_has_the_exit_code(found):  # F1
    plain = json.loads(checked_to_json(found), parse_constant=pytest.fail)
    assert (plain["outcome"], plain["exit_code"], plain["paired"]) == ("regression", 1, False)
    first = plain["findings"][0]
    assert (first["metric"], first["outcome"]) == ("output_throughput_tok_s", "regression")
    assert (first["limit"], first["gates"]) == (0.95, True)
    assert plain["run"]["machine"] == {"model": "Test CPU", "cores": 2, "dtype": "float32"}


def test_ratios_to_an_engine_are_bare_factors(make_run):
    run = make_run("run", {"ref": FIVE, "e": [2 * v for v in FIVE]})
    options = CheckOptions(
        metrics=("output_throughput_tok_s",), limits=Limits(0.05), relative_to="ref"
    )
    text = check_text(check(read_side(run), read_baseline(run), options))
    assert "2.00x ref in 5 rounds, now 2.00x ref in 5" in text
    assert "divided by ref of the same round" in text
