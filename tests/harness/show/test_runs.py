"""Finished runs on paper: nothing cut, nothing read as markup, unknown is n/a."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from harness.compare.across import compare_runs
from harness.compare.encoding import compared_to_json
from harness.compare.inputs import read_source, read_sources
from harness.show.runs import runs_markdown, runs_text

FIVE = [10.0, 10.4, 9.8, 10.1, 10.3]


def pair(make_run, **options):
    a = make_run("before", {"e[/cb]|": FIVE}, info={"note": "*x*"})
    b = make_run("after", {"e[/cb]|": [v * 0.8 for v in FIVE]}, **options)
    return compare_runs(read_sources([a, b]))


def test_text_has_a_table_that_fits_and_every_remark(make_run):
    text = runs_text(pair(make_run, environment={"cpu": "Other"}))
    assert "A: before (cbbench, 5 rounds, workload chat, hash abc123), the reference" in text
    row = next(line for line in text.splitlines() if line.startswith("output tok/s"))
    assert row.split() == ["output", "tok/s", "10.1", "8.08", "0.800x", "0.773-0.828", "worse"]
    assert "not made in turns" in text
    assert "They also differ in cpu (Test CPU and Other), note (*x*" not in text
    assert "They also differ in cpu (Test CPU and Other)." in text
    table = text[text.index("metric") : text.index("\n  ")].splitlines()
    assert max(map(len, table)) <= 80


def test_text_is_complete_in_ascii_and_without_width(make_run):  # V2, V5
    text = runs_text(pair(make_run), 20, "ascii")
    text.encode("ascii")
    assert "e[/cb]| at all-at-once: B / A" in text
    assert "0.773-0.828" in text


def test_markdown_shows_outside_text_literally(make_run):  # V1
    text = runs_markdown(pair(make_run))
    assert "## e\\[/cb\\]\\| at all-at-once: B / A" in text
    assert "| output tok/s | 10.1 | 8.08 | 0.800x | 0.773-0.828 | worse |" in text


def test_json_is_strict_and_named_as_in_run_json(make_run):  # F1
    def refuse(name: str):
        raise AssertionError(f"{name} is not JSON")

    plain = json.loads(compared_to_json(pair(make_run)), parse_constant=refuse)
    assert plain["workload_hash"] == "abc123"
    first = next(c for c in plain["comparisons"] if c["metric"] == "output_throughput_tok_s")
    assert first["answer"] == "worse"
    assert (first["baseline_source"], first["engine_source"]) == ("before", "after")
    assert first["paired"] is False
    names = {"load", "metric", "direction", "baseline", "engine", "baseline_value", "engine_value"}
    names |= {"ratio", "low", "high", "answer", "detectable", "note", "also_different"}
    assert names <= first.keys()


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"kept_up": True}, "Both kept up with the arrivals"),
        ({"unfinished": 2, "ended": False}, "A: only 2 unfinished rounds"),
        ({"unfinished": 2, "ended": True}, "A: 2 unfinished rounds left out"),
        ({"notes": ("it rained",)}, "A: it rained"),
    ],
)
def test_what_a_reader_must_know_of_a_case_is_told(make_run, changed, words):
    source = read_source(make_run("a", {"e": FIVE}), "a")
    told = replace(source, cases=(replace(source.cases[0], **changed),))
    other = replace(told, name="b")
    assert words in runs_text(compare_runs([told, other]))
    assert words not in runs_text(compare_runs([source, replace(source, name="b")]))


def test_ttft_from_sending_is_shown_where_a_side_has_no_other(make_run):
    source = read_source(make_run("a", {"e": FIVE}), "a")
    case = source.cases[0]
    values = {name: v for name, v in case.values.items() if not name.startswith("ttft_s.")}
    other = replace(source, cases=(replace(case, values=values),))
    assert "TTFT from send p50" in runs_text(compare_runs([source, other]))
    assert "TTFT from send p50" not in runs_text(compare_runs([source, source]))


def test_few_rounds_and_failures_are_said(make_run):
    a = make_run("a", {"e": FIVE[:2]})
    b = make_run("b", {"e": [10.0, None]})
    text = runs_text(compare_runs(read_sources([a, b])))
    assert "B: 4 of 8 requests were ok" in text
    assert "B: SUSPECT rounds: 2 of 2" in text
    assert "nan" not in text.lower()
    assert "output tok/s, req/s: a round measured 0" in text
