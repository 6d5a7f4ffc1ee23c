"""Places are shortened in others' text, and file names alone stay of what was asked for."""

from __future__ import annotations

from pathlib import Path

import pytest

from engines.registry import BuildContext
from harness.places import plain_settings, without_folders, without_places


@pytest.fixture
def at_work(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The current directory, inside of the home directory."""
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(work)
    return work


def test_home_and_current_directory_are_shortened(at_work: Path) -> None:
    home = at_work.parent
    assert (
        without_places(f"no {at_work}/a.bin, no {home}/b in {home}.") == "no ./a.bin, no ~/b in ~."
    )


def test_a_longer_name_is_no_place(at_work: Path) -> None:
    assert without_places(f"{at_work}ing") == "~/working"
    assert without_places("1/2 of /tmpx") == "1/2 of /tmpx"


@pytest.mark.parametrize(
    ("spec", "shown"),
    [
        ("loop[policy=static]", "loop[policy=static]"),
        ("x[table=/a/b.csv,n=2]", "x[table=b.csv,n=2]"),
        ("x[table=~/b.csv]", "x[table=b.csv]"),
        (
            'server[command="v serve /a/b --x=/c/d {port}"]',
            'server[command="v serve b --x=d {port}"]',
        ),
        ('server[command="/usr/bin/python x.py"]', 'server[command="python x.py"]'),
        ("openai[base_url=http://a/v1]", "openai[base_url=http://a/v1]"),
        ("x[table=../b.csv]", "x[table=b.csv]"),
        ('x[table="/a b/c, d.csv",n=2]', 'x[table="c, d.csv",n=2]'),
        ("x[url=http://h/v1]", "x[url=http://h/v1]"),
    ],
)
def test_a_spec_keeps_the_names_of_files_alone(spec: str, shown: str) -> None:
    assert without_folders(spec) == shown


def test_settings_keep_the_names_of_files_alone() -> None:
    settings = {"table": "/a,b/c.csv", "n": 2, "policy": "static"}
    assert plain_settings(settings) == {"table": "c.csv", "n": 2, "policy": "static"}


@pytest.mark.parametrize(
    ("model", "name"),
    [("tiny", "tiny"), ("org/model", "org/model"), ("/none/m", "m"), ("~/m", "m"), (".", "work")],
)
def test_a_model_is_named_without_its_folder(at_work: Path, model: str, name: str) -> None:
    assert BuildContext(model=model).model_name == name


def test_a_relative_folder_is_a_folder(at_work: Path) -> None:
    (at_work / "org" / "model").mkdir(parents=True)
    assert BuildContext(model="org/model").model_name == "model"
