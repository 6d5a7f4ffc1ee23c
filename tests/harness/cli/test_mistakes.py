"""Every mistake of a user: exit code 2, one sentence on stderr, no traceback, nothing left over."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

Call = Callable[..., "subprocess.CompletedProcess[str]"]


def assert_refused(done: subprocess.CompletedProcess[str], *words: str) -> None:
    assert done.returncode == 2, done.stderr
    lines = done.stderr.strip().splitlines()
    assert lines[-1].startswith("error: ")
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    for word in words:
        assert word in lines[-1]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--engines", "torhc"], ["unknown engine 'torhc'", "continuous"]),
        (["--engines", "fake[slotz=2]"], ["slotz", "did you mean 'slots'"]),
        (["--engines", "fake[slots=0]"], ["slots=0", "a whole number >= 1"]),
        (["--engines", "fake,fake"], ["two engines are called 'fake'"]),
        (["--workload", "chatt-mix"], ["chatt-mix", "chat-mix"]),
        (["--workload", "trace:nowhere.csv"], ["nowhere.csv"]),
        (["--num-prompts", "0"], ["--num-prompts is '0'", "a whole number >= 1"]),
        (["--request-rate", "1e999"], ["--request-rate is '1e999'", "a number > 0, or inf"]),
        (["--request-rate", "nan"], ["--request-rate is 'nan'"]),
        (["--goodput", "ttfp:1"], ["ttfp"]),
        (["--goodput", "ttft:-1"], ["ttft"]),
        (["--no-such-option"], ["--no-such-option"]),
        (["--num-prompts"], ["--num-prompts"]),
        (["--json", "no/such/folder/run.json"], ["--json"]),
    ],
)
def test_refused_in_a_sentence_before_anything_is_made(
    call: Call, tmp_path: Path, arguments: list[str], words: list[str]
) -> None:
    done = call("run", *(["--engines", "fake"] if "--engines" not in arguments else []), *arguments)
    assert_refused(done, *words)
    assert not (tmp_path / "results").exists()


def test_unknown_command_is_refused(call: Call) -> None:
    assert_refused(call("rnu"), "rnu")


def test_folder_that_holds_something_is_never_written(
    call: Call, tmp_path: Path, small: list[str]
) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.txt").write_text("mine")
    assert_refused(call("run", "--engines", "fake", *small, "--out", "full"), "full", "not empty")
    assert [path.name for path in (tmp_path / "full").iterdir()] == ["thesis.txt"]


def test_folder_that_cannot_be_written_is_known_before_a_model_loads(
    call: Call, tmp_path: Path, small: list[str]
) -> None:
    (tmp_path / "file").write_text("")
    done = call("run", "--engines", "fake[fault=mistake]", *small, "--out", "file/run")
    assert_refused(done, "cannot be written", "--out")


def test_model_that_is_missing_ends_the_run_and_leaves_no_folder(
    call: Call, tmp_path: Path, small: list[str]
) -> None:
    done = call(
        "run", "--engines", "fake,b=fake[fault=mistake]", "--model", "./gone", *small, "--out", "o"
    )
    assert_refused(done, "engine 'b'", "'./gone' is not here")
    assert not (tmp_path / "o").exists()


def test_report_of_a_folder_without_a_run_is_refused(call: Call, tmp_path: Path) -> None:
    assert_refused(call("report", "nowhere"), "nowhere")
    (tmp_path / "empty").mkdir()
    assert_refused(call("report", "empty"), "empty")


def test_mistake_reads_the_same_from_a_process(call_apart: Call) -> None:
    assert_refused(call_apart("run", "--engines", "torhc"), "unknown engine 'torhc'")


def test_debug_shows_the_traceback(call_apart: Call) -> None:
    done = call_apart("--debug", "run", "--engines", "torhc")
    assert done.returncode != 0
    assert "Traceback" in done.stderr
