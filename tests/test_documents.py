"""What the documents show works: their code runs, their workload loads, their commands parse."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tomllib
import types
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from engines.api import Request, StepEvents
from engines.clock import VirtualClock
from engines.registry import BuildContext, parse_engines
from harness.cli.main import app
from workloads.listing import describe
from workloads.sources import QueueSource, ScheduledSource
from workloads.workload import ModelLimits, draw, open_workload

ROOT = Path(__file__).parents[1]
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


def blocks(name: str, language: str) -> list[str]:
    text = (ROOT / name).read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)


@pytest.fixture
def zeros(monkeypatch):
    module = types.ModuleType("zeros")
    exec(blocks("CONTRIBUTING.md", "python")[0], module.__dict__)
    monkeypatch.setitem(sys.modules, "zeros", module)
    return module


class Sink:
    """Keeps the events, and acts when the first token has come."""

    def __init__(self, act: Callable[[], object] = lambda: None) -> None:
        self.events: list[StepEvents] = []
        self._act = act

    def emit(self, events: StepEvents) -> None:
        self.events.append(events)
        if self.num_tokens == 1 and events.token_ids:
            self._act()

    @property
    def num_tokens(self) -> int:
        return sum(len(e.token_ids) for e in self.events)

    @property
    def ends(self) -> list[tuple[str, str]]:
        return [(f.request_id, f.status) for e in self.events for f in e.finished]


@pytest.fixture
def zeros_engine(zeros):
    (spec,) = parse_engines("zeros[pause_ms=20]", {"zeros": zeros.ENTRY})
    return zeros.build(spec.settings, BuildContext())


def test_the_engine_of_contributing_serves(zeros_engine):
    clock, sink = VirtualClock(), Sink()
    requests = [Request("a", (1,), 3), Request("b", (2,), None, scheduled_s=1.0)]
    zeros_engine.run(ScheduledSource(requests, clock), sink, clock)
    assert sink.num_tokens == 3 + 16
    assert sink.ends == [("a", "ok"), ("b", "ok")]
    assert clock.now() == pytest.approx(1.32)


def test_the_engine_of_contributing_hears_a_stop(zeros_engine):
    clock, sink = VirtualClock(), Sink(zeros_engine.stop)
    requests = [Request("a", (1,), 3), Request("b", (2,), 2)]
    zeros_engine.run(ScheduledSource(requests, clock), sink, clock)
    assert (sink.num_tokens, sink.ends) == (1, [("a", "cancelled")])
    again = Sink()
    zeros_engine.run(ScheduledSource(requests, clock), again, clock)
    assert again.ends == [("a", "ok"), ("b", "ok")]


def test_the_engine_of_contributing_lets_a_client_go(zeros_engine):
    clock = VirtualClock()
    source = QueueSource(clock)
    for request in (Request("a", (1,), 3), Request("b", (2,), 2)):
        source.submit(request)
    source.close()
    sink = Sink(lambda: source.cancel("a"))
    zeros_engine.run(source, sink, clock)
    assert (sink.num_tokens, sink.ends) == (3, [("a", "cancelled"), ("b", "ok")])


def test_the_entry_point_of_contributing_is_the_registrys():
    from engines.registry import ENTRY_POINT_GROUP

    table = tomllib.loads(blocks("CONTRIBUTING.md", "toml")[0])
    assert list(table["project"]["entry-points"]) == [ENTRY_POINT_GROUP]


def wheel(folder: Path, module: str, code: str, entry_points: dict[str, dict[str, str]]) -> Path:
    """A package of one module, as a build tool would make it."""
    info = f"{module}-1.0.dist-info"
    listed = "".join(
        f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in points.items())
        for group, points in entry_points.items()
    )
    files = {
        f"{module}.py": code,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": listed,
    }
    path = folder / f"{module}-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
        archive.writestr(f"{info}/RECORD", "".join(f"{n},,\n" for n in [*files, f"{info}/RECORD"]))
    return path


@pytest.fixture(scope="module")
def policy_package(tmp_path_factory) -> dict[str, str]:
    """An environment in which the policy of CONTRIBUTING is installed as a package of its own."""
    folder = tmp_path_factory.mktemp("package")
    points = tomllib.loads(blocks("CONTRIBUTING.md", "toml")[1])["project"]["entry-points"]
    package = wheel(folder, "last_come", blocks("CONTRIBUTING.md", "python")[1], points)
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-index", "--no-deps"]
    subprocess.run([*pip, "--target", str(folder / "site"), str(package)], check=True)
    paths = [str(folder / "site"), os.environ.get("PYTHONPATH", "")]
    return os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))}


def run_cbbench(environment, cwd, *arguments):
    return subprocess.run(
        [sys.executable, "-m", "harness.cli.main", *arguments],
        env=environment,
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_the_policy_of_contributing_is_short():
    code = blocks("CONTRIBUTING.md", "python")[1]
    assert len([line for line in code.splitlines() if line.strip()]) < 40


def test_the_policy_of_contributing_runs_in_virtual_time(policy_package):
    code = blocks("CONTRIBUTING.md", "python")[2]
    subprocess.run([sys.executable, "-c", code], env=policy_package, timeout=60, check=True)


def test_an_installed_policy_is_a_choice_of_the_loop(policy_package, tmp_path):
    listed = run_cbbench(policy_package, tmp_path, "engines").stdout
    assert "policy=last-come: the newest first, one at a time" in listed
    assert "patience_ms=0  (policy last-come)" in listed
    engine = "loop[policy=last-come,patience_ms=1]"
    small = ["--num-prompts", "3", "--input-len", "4", "--output-len", "2", "--repeats", "1"]
    done = run_cbbench(
        policy_package,
        tmp_path,
        *("run", "--engines", engine, "--workload", "uniform", "--request-rate", "inf", *small),
    )
    assert done.returncode == 0, done.stderr
    assert "last-come" in done.stdout


def test_the_workload_of_contributing_loads(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(blocks("CONTRIBUTING.md", "toml")[2])
    described = describe(open_workload(str(path)))
    assert described.classes == ("question", "essay")
    assert described.num_prompts == 40


def test_the_workloads_of_their_page_load_and_share_what_they_say(tmp_path):
    assistants, talks, _ = blocks("docs/workloads.md", "toml")
    for name, text in (("assistants", assistants), ("talks", talks)):
        path = tmp_path / f"{name}.toml"
        path.write_text(text)
        described = describe(open_workload(str(path)))
        assert described.shared_prompt_share > 0.4
        assert bool(described.sessions) is (name == "talks")


def test_the_workload_of_the_page_that_has_priorities_gives_them(tmp_path):
    path = tmp_path / "tiers.toml"
    path.write_text(blocks("docs/workloads.md", "toml")[2])
    drawn = draw(open_workload(str(path)), seed=0, limits=ModelLimits(4096, 4096))
    assert {(r.request_class, r.priority) for r in drawn.requests} == {("people", 0), ("batch", 10)}


def commands() -> list[str]:
    found = []
    for document in DOCUMENTS:
        text = document.read_text(encoding="utf-8").replace("\\\n", " ")
        found += re.findall(r"^ {4}(?:pip install -e \. && )?(cbbench .*)$", text, re.MULTILINE)
    return found


@pytest.mark.parametrize("command", commands())
def test_commands_in_documents_name_known_commands_and_options(command):
    words = shlex.split(command, comments=True)[1:]
    path = [word for word in words[:2] if not word.startswith("-") and word.isalpha()]
    known = None
    for length in (2, 1):
        result = CliRunner().invoke(app, [*path[:length], "--help"])
        if result.exit_code == 0:
            known = result.output
            break
    assert known is not None, f"no such command: {path}"
    for word in words:
        if word.startswith("--"):
            assert word.split("=")[0] in known, f"{word} is not an option of {path}"


def test_there_are_commands_to_check():
    assert len(commands()) >= 5
