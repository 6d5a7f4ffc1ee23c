"""`cbbench compare` as it is called: exit codes, streams, files."""

from __future__ import annotations

import json

import pytest

FIVE = [10.0, 10.4, 9.8, 10.1, 10.3]


@pytest.fixture
def runs(make_run):
    make_run("before", {"e": FIVE})
    make_run("after", {"e": [v * 0.8 for v in FIVE]})


def test_two_folders_are_compared(call, runs):
    done = call("compare", "before", "after")
    assert done.returncode == 0
    assert "0.800x" in done.stdout


def test_formats_and_json_go_where_they_are_wanted(call, runs, tmp_path):
    assert call("compare", "before", "after", "--format", "markdown").stdout.startswith("# Runs")
    whole = call("compare", "before", "after", "--format", "json")
    assert json.loads(whole.stdout)["comparisons"]
    done = call("compare", "before", "after", "--json", "-")
    assert json.loads(done.stdout) == json.loads(whole.stdout)
    assert "0.800x" in done.stderr
    done = call("compare", "before", "after", "--json", "out.json")
    assert "0.800x" in done.stdout
    assert json.loads((tmp_path / "out.json").read_text()) == json.loads(whole.stdout)


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["before"], "two or more"),
        (["before", "nowhere"], "nowhere"),
        (["before", "after", "--format", "yaml"], "text, markdown, json"),
        (["before", "after", "--json", "no/such/file"], "--json"),
        (["before", "after", "--engine"], "--engine"),
    ],
)
def test_mistakes_are_one_sentence(call, runs, arguments, word):
    done = call("compare", *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: ")
    assert word in done.stderr
