"""`cbbench check` and `cbbench baseline update` as CI calls them: exit codes and files."""

from __future__ import annotations

import json

import pytest

FIVE = [10.0, 10.1, 9.9, 10.05, 9.95]


@pytest.fixture(autouse=True)
def no_step_summary(monkeypatch):
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)


@pytest.fixture
def baseline(make_run, call, tmp_path):
    make_run("base", {"e": FIVE})
    (tmp_path / "baselines").mkdir()
    done = call("baseline", "update", "base", "--baseline", "baselines/main.json")
    assert done.returncode == 0
    assert "main.json holds base for Test CPU, 2 cores, float32" in done.stdout
    return "baselines/main.json"


@pytest.mark.parametrize(
    ("factor", "code", "word"),
    [(1.0, 0, "pass:"), (0.8, 1, "regression:"), (0.95, 3, "inconclusive:")],
)
def test_each_answer_has_its_exit_code(call, make_run, baseline, factor, code, word):
    make_run("run", {"e": [v * factor for v in FIVE]})
    done = call("check", "run", "--baseline", baseline, "--max-regression", "5%")
    assert (done.returncode, done.stderr) == (code, "")
    assert done.stdout.splitlines()[-1].startswith(word)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nowhere", "--baseline", "base"], ["nowhere"]),
        (["base", "--baseline", "gone.json"], ["no baseline gone.json", "baseline update"]),
        (["base", "--baseline", "broken.json"], ["broken.json"]),
        (["base"], ["--baseline"]),
        (["base", "--baseline", "base", "--metric", "tok_s"], ["unknown metric 'tok_s'"]),
        (["base", "--baseline", "base", "--max-regression", "5"], ["--max-regression is '5'"]),
        (["base", "--baseline", "base", "--max-increase-abs", "x"], ["--max-increase-abs is 'x'"]),
        (["base", "--baseline", "base", "--engine", "q"], ["'e at all-at-once'"]),
        (["base", "--baseline", "base", "--relative-to", "q"], ["'q at all-at-once'"]),
        (["base", "--baseline", "base", "--junit", "no/such/file.xml"], ["--junit"]),
        (["base", "--baseline", "base", "--summary", "baselines"], ["--summary"]),
        (["base", "--baseline", "base", "--format", "xml"], ["--format"]),
        (["empty", "--baseline", "base"], ["0 requests"]),
    ],
)
def test_what_cannot_be_checked_is_two_and_one_sentence(
    call, make_run, baseline, tmp_path, arguments, words
):
    (tmp_path / "broken.json").write_text("{")
    make_run("empty", {})
    done = call("check", *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.strip().splitlines()) == 1
    for word in words:
        assert word in done.stderr


def test_files_are_written_where_they_are_wanted(call, make_run, baseline, tmp_path):
    make_run("run", {"e": [v * 0.8 for v in FIVE]})
    files = ["--junit", "j.xml", "--summary", "s.md", "--json", "c.json"]
    done = call("check", "run", "--baseline", baseline, *files)
    assert done.returncode == 1
    assert 'failures="1"' in (tmp_path / "j.xml").read_text()
    assert (tmp_path / "s.md").read_text().startswith("## cbbench check: regression")
    assert json.loads((tmp_path / "c.json").read_text())["exit_code"] == 1
    done = call("check", "run", "--baseline", baseline, "--json", "-")
    assert json.loads(done.stdout)["exit_code"] == 1
    assert "REGRESSION" in done.stderr


def test_the_step_summary_is_added_to_unless_a_file_is_named(call, baseline, tmp_path, monkeypatch):
    path = tmp_path / "step.md"
    path.write_text("before\n")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(path))
    assert call("check", "base", "--baseline", baseline).returncode == 0
    assert path.read_text().startswith("before\n## cbbench check: pass")
    path.write_text("before\n")
    call("check", "base", "--baseline", baseline, "--summary", "s.md")
    assert path.read_text() == "before\n"
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "no" / "such"))
    assert call("check", "base", "--baseline", baseline).returncode == 2


def test_a_baseline_that_cannot_be_made_changes_no_file(call, make_run, baseline, tmp_path):
    before = (tmp_path / baseline).read_text()
    make_run("bad", {"e": [10.0, None]})
    done = call("baseline", "update", "bad", "--baseline", baseline)
    assert done.returncode == 2
    assert (tmp_path / baseline).read_text() == before
    done = call("baseline", "update", "base", "--baseline", "no/such/file.json")
    assert (done.returncode, "--baseline" in done.stderr) == (2, True)
    assert call("baseline").returncode == 2


def test_few_rounds_in_a_baseline_are_warned_of(call, make_run):
    make_run("short", {"e": FIVE[:3]})
    done = call("baseline", "update", "short", "--baseline", "short.json")
    assert done.returncode == 0
    assert "warning: a check needs 5 rounds" in done.stdout


def deep(levels=100_000):
    return '{"schema_version": 1, "baseline_version": 1, "x": ' + "[" * levels + "]" * levels + "}"


@pytest.mark.parametrize(
    "arguments",
    [
        ["base", "--baseline", "n" * 300],
        ["n" * 300, "--baseline", "base"],
        ["base", "--baseline", "deep.json"],
        ["deep.json", "--baseline", "base"],
        ["deep", "--baseline", "base"],
        ["base", "--baseline", "base", "--junit", "n" * 300 + "/j.xml"],
        ["ring", "--baseline", "base"],
        ["base", "--baseline", "ring"],
    ],
)
def test_what_cannot_be_read_is_no_regression(call, baseline, tmp_path, arguments):  # U5
    (tmp_path / "deep").mkdir()
    (tmp_path / "ring").symlink_to("ring")
    for path in ("deep.json", "deep/run.json"):
        (tmp_path / path).write_text(deep())
    done = call("check", *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.strip().splitlines()) == 1


def test_a_folder_that_is_closed_to_us_is_no_regression(call, baseline, monkeypatch):
    def closed(path, **_):
        raise PermissionError(13, "Permission denied", str(path))

    for looks in ("is_dir", "is_file", "exists"):
        monkeypatch.setattr(f"pathlib.Path.{looks}", closed)
    done = call("check", "base", "--baseline", baseline)
    assert done.returncode == 2
    assert "cannot look at" in done.stderr


def test_a_defect_is_told_with_its_traceback_and_is_no_regression(call, baseline, monkeypatch):
    def broken(*_):
        raise ZeroDivisionError("planted")

    monkeypatch.setattr("harness.gate.session.check", broken)
    done = call("check", "base", "--baseline", baseline)
    assert done.returncode == 70
    assert "Traceback" in done.stderr
    assert "planted" in done.stderr


@pytest.mark.parametrize(("factor", "code"), [(1.0, 0), (0.8, 1), (0.95, 3)])
def test_an_answer_that_nobody_reads_keeps_its_code(
    start, make_run, baseline, plain_environment, monkeypatch, factor, code
):
    make_run("run", {"e": [v * factor for v in FIVE]})
    for buffered in ("", "1"):
        monkeypatch.setitem(plain_environment, "PYTHONUNBUFFERED", buffered)
        process = start("check", "run", "--baseline", baseline)
        process.stdout.close()
        assert process.wait(60) == code
        assert process.stderr.read() == ""


def test_a_broken_pipe_to_something_else_is_a_defect(call, baseline, monkeypatch):
    def broken(*_):
        raise BrokenPipeError(32, "planted")

    monkeypatch.setattr("harness.gate.session.check", broken)
    done = call("check", "base", "--baseline", baseline)
    assert done.returncode == 70
    assert "planted" in done.stderr
