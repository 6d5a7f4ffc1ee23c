"""What the documents show works: their code runs, their workload loads, their commands parse."""

from __future__ import annotations

import re
import shlex
import sys
import tomllib
import types
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
from workloads.workload import open_workload

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


def test_the_policy_of_contributing_runs():
    exec(blocks("CONTRIBUTING.md", "python")[1], {})


def test_the_entry_point_of_contributing_is_the_registrys():
    from engines.registry import ENTRY_POINT_GROUP

    table = tomllib.loads(blocks("CONTRIBUTING.md", "toml")[0])
    assert list(table["project"]["entry-points"]) == [ENTRY_POINT_GROUP]


def test_the_workload_of_contributing_loads(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(blocks("CONTRIBUTING.md", "toml")[1])
    described = describe(open_workload(str(path)))
    assert described.classes == ("question", "essay")
    assert described.num_prompts == 40


def test_the_workloads_of_their_page_load_and_share_what_they_say(tmp_path):
    assistants, talks = blocks("docs/workloads.md", "toml")
    for name, text in (("assistants", assistants), ("talks", talks)):
        path = tmp_path / f"{name}.toml"
        path.write_text(text)
        described = describe(open_workload(str(path)))
        assert described.shared_prompt_share > 0.4
        assert bool(described.sessions) is (name == "talks")


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
