"""The environment says what results depend on and nothing about who ran them."""

from __future__ import annotations

import getpass
import json
import os
import platform
import subprocess
import sys
from pathlib import Path

from harness.environment import describe_environment, git_revision


def test_it_names_machine_and_libraries_and_is_strict_json():
    told = describe_environment(load_sample_s=0.0)
    text = json.dumps(told, allow_nan=False)
    assert told["libraries"]["numpy"]
    assert told["memory_bytes"] > 0
    assert "python" in text.lower()


def test_it_gives_no_user_host_home_or_environment_variable(monkeypatch):
    monkeypatch.setenv("SOME_TOKEN", "very-secret-value")
    text = json.dumps(describe_environment(load_sample_s=0.0))
    assert "very-secret-value" not in text
    assert platform.node() not in text or len(platform.node()) < 4
    assert str(Path.home()) not in text or str(Path.home()) == "/"
    assert f'"{getpass.getuser()}"' not in text
    assert os.environ["PATH"] not in text


def test_it_does_not_load_torch():
    code = (
        "import sys; from harness.environment import describe_environment; "
        "describe_environment(0.0); assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_revision_is_of_the_checkout_itself_not_of_a_folder_around_it(tmp_path):
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    inner = tmp_path / "installed"
    inner.mkdir()
    assert git_revision(inner) is None
    assert git_revision(tmp_path) is None  # no commit yet
