"""Servers that a run starts: waited for, drained, and gone in the end, however that comes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path

import psutil
import pytest

from engines.api import CbbenchError, Request
from engines.clock import WallClock
from engines.registry import BuildContext, parse_engines
from engines.remote import managed
from engines.remote.catalogue import SERVED, SERVER, SGLANG, VLLM
from engines.remote.managed import build_served, build_server, build_sglang, build_vllm
from engines.remote.managed_server import ManagedServer, filled_in, free_port
from workloads.sources import ScheduledSource

pytestmark = pytest.mark.loopback

SERVER_SCRIPT = """
import json, os, signal, subprocess, sys, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

notes, port, manner = sys.argv[1], int(sys.argv[2]), sys.argv[3]

def note(text):
    with open(notes, "a") as file:
        file.write(text + "\\n")

if manner == "dies":
    sys.exit("no such model")
if manner == "deaf":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
elif manner == "drains":
    def drain(*_):
        time.sleep(float(os.environ.get("DRAINS_FOR_S", 0)))
        note("drained")
        sys.exit(0)
    signal.signal(signal.SIGTERM, drain)
sleeping = [sys.executable, "-c", "import time; time.sleep(600)"]
child = subprocess.Popen(sleeping, start_new_session=True)
note(f"pids {os.getpid()} {child.pid}")
if manner == "silent":
    time.sleep(600)

class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def reply(self, body, kind="application/json"):
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def do_GET(self):
        self.reply(json.dumps({"data": [{"id": "mine"}]}).encode())
    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"]))
        if manner == "falls":
            os._exit(7)
        event = {"choices": [{"index": 0, "text": "a", "finish_reason": "stop"}]}
        stream = "data: " + json.dumps(event) + "\\n\\ndata: [DONE]\\n\\n"
        self.reply(stream.encode(), "text/event-stream")
    def log_message(self, *_): pass

ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()
"""


@pytest.fixture
def script(tmp_path) -> Path:
    path = tmp_path / "a server.py"
    path.write_text(SERVER_SCRIPT)
    return path


@pytest.fixture
def notes(tmp_path):
    """What the server has written down; its processes are ended, whatever the test did."""
    path = tmp_path / "notes"

    class Notes:
        def text(self):
            return path.read_text() if path.exists() else ""

        def pids(self):
            lines = [line.split()[1:] for line in self.text().splitlines() if line[:4] == "pids"]
            return [int(pid) for line in lines for pid in line]

        def __fspath__(self):
            return str(path)

    found = Notes()
    yield found
    for pid in found.pids():
        if psutil.pid_exists(pid):
            os.kill(pid, signal.SIGKILL)


def gone(pids, limit_s=5.0):
    end_s = time.monotonic() + limit_s
    while any(map(alive, pids)) and time.monotonic() < end_s:
        time.sleep(0.05)
    return bool(pids) and not any(map(alive, pids))


def alive(pid):
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def settings_for(entry, **values):
    return {s.name: s.default for s in entry.settings} | {"certify": False} | values


def command(script, notes, manner="drains"):
    return f"'{sys.executable}' '{script}' {os.fspath(notes)} {{port}} {manner}"


def build(script, notes, manner="drains", **values):
    settings = settings_for(SERVER, command=command(script, notes, manner), **values)
    return build_server(settings, BuildContext())


class Ends:
    def __init__(self):
        self.statuses = {}

    def emit(self, events):
        self.statuses |= {finish.request_id: finish.status for finish in events.finished}


def serve_one(engine):
    clock, ends = WallClock(), Ends()
    engine.run(ScheduledSource([Request("r0", (9,), 1)], clock), ends, clock)
    return ends.statuses


def test_a_server_is_started_used_drained_and_ended(script, notes):
    engine = build(script, notes)
    assert serve_one(engine) == {"r0": "ok"}
    assert set(notes.pids()[:1]) <= set(engine.server_pids())
    engine.close()
    assert "drained" in notes.text()
    assert gone(notes.pids())


def test_an_exported_model_goes_with_its_server(script, notes, monkeypatch, tmp_path):
    def export(_, folder):
        (folder / "tiny").mkdir()
        return str(folder / "tiny")

    monkeypatch.setattr(managed, "files_of", export)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    engine = build_server(
        settings_for(SERVER, command=command(script, notes) + " {model}"), BuildContext()
    )
    assert len(list(tmp_path.glob("cbbench-model-*/tiny"))) == 1
    engine.close()
    assert list(tmp_path.glob("cbbench-model-*")) == []


def test_a_server_that_does_not_listen_to_sigterm_is_killed_with_what_it_started(script, notes):
    engine = build(script, notes, "deaf", stop_timeout=0.3)
    began_s = time.monotonic()
    engine.close()
    assert time.monotonic() - began_s < 4
    assert gone(notes.pids())


def test_a_server_that_does_not_come_up_is_told_with_its_last_words(script, notes):
    with pytest.raises(CbbenchError, match=r"exit code 1; its last words: no such model"):
        build(script, notes, "dies")


def test_a_command_that_is_none_is_told(tmp_path):
    settings = settings_for(SERVER, command=f"{tmp_path}/nothing --port {{port}}")
    with pytest.raises(CbbenchError, match="No such file"):
        build_server(settings, BuildContext())


def test_a_server_that_never_answers_is_ended_in_time(script, notes):
    with pytest.raises(CbbenchError, match=r"did not answer .* within 1 s"):
        build(script, notes, "silent", start_timeout=1.0)
    assert gone(notes.pids())


def test_a_server_that_falls_over_breaks_the_run_loudly(script, notes):
    engine = build(script, notes, "falls")
    try:
        with pytest.raises(RuntimeError, match="the server ended with exit code 7"):
            serve_one(engine)
    finally:
        engine.close()
    assert gone(notes.pids())


def test_a_port_that_is_taken_is_refused(script, notes, serve):
    with pytest.raises(CbbenchError, match="a server listens there already"):
        build(script, notes, port=serve().port)
    assert notes.pids() == []


def test_a_server_that_ended_is_not_taken_for_the_one_that_answers(script, notes, serve):
    words = [sys.executable, str(script), os.fspath(notes), "0", "dies"]
    server = ManagedServer(words, {}, 0.5)
    end_s = time.monotonic() + 10
    while server.ended() is None and time.monotonic() < end_s:
        time.sleep(0.05)
    with pytest.raises(CbbenchError, match="no such model"):
        server.wait(f"{serve().url}/models", 5)
    server.close()


def test_a_server_that_fell_is_told_whoever_listens_in_its_place(script, notes, serve):
    words = [sys.executable, str(script), os.fspath(notes), "0", "dies"]
    server = ManagedServer(words, {}, 0.5)
    end_s, port = time.monotonic() + 10, serve().port
    while (ended := server.fallen(port)) is None and time.monotonic() < end_s:
        time.sleep(0.05)
    assert "no such model" in ended
    server.close()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_what_is_no_http_is_no_answer_yet(script, notes, serve):
    async def speaks_no_http(call):
        await call.raw(b"220 mail.example ESMTP\r\n\r\n")
        call.writer.close()

    other = serve()
    other.pages["/v1/models"] = speaks_no_http
    words = [sys.executable, str(script), os.fspath(notes), str(free_port()), "drains"]
    server = ManagedServer(words, {}, 0.5)
    with pytest.raises(CbbenchError, match=r"did not answer .* within 1 s"):
        server.wait(f"{other.url}/models", 1.0)


OWNER = """
import sys, time
from pathlib import Path
from engines.remote.managed_server import ManagedServer
server = ManagedServer(sys.argv[2:], {}, 0.5, Path(sys.argv[1]))
print("started", flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_server_and_its_folder_go_with_their_owner_however_that_goes(
    script, notes, number, tmp_path
):
    folder = tmp_path / "exported"
    (folder / "model").mkdir(parents=True)
    words = [str(folder), sys.executable, str(script), os.fspath(notes), str(free_port()), "deaf"]
    owner = subprocess.Popen([sys.executable, "-c", OWNER, *words], stdout=subprocess.PIPE)
    try:
        assert owner.stdout.readline() == b"started\n"
        end_s = time.monotonic() + 10
        while not notes.pids() and time.monotonic() < end_s:
            time.sleep(0.05)
        assert len(notes.pids()) == 2
        owner.send_signal(number)
        assert gone(notes.pids())
        end_s = time.monotonic() + 10
        while folder.exists() and time.monotonic() < end_s:
            time.sleep(0.05)
        assert not folder.exists()
    finally:
        owner.kill()
        owner.wait()
        owner.stdout.close()


def test_the_supervisor_drains_once_however_often_it_is_told(script, notes, monkeypatch):
    monkeypatch.setenv("DRAINS_FOR_S", "0.6")
    words = [sys.executable, str(script), os.fspath(notes), str(free_port()), "drains"]
    server = ManagedServer(words, {}, 10.0)
    end_s = time.monotonic() + 10
    while not notes.pids() and time.monotonic() < end_s:
        time.sleep(0.05)
    for _ in range(3):
        server._supervisor.terminate()
        time.sleep(0.15)
    server.close()
    assert "drained" in notes.text()
    assert server.ended().startswith("ended with exit code 0")


def test_a_server_dies_with_its_supervisor_too(script, notes):
    server = ManagedServer(
        [sys.executable, str(script), os.fspath(notes), str(free_port()), "deaf"], {}, 0.5
    )
    end_s = time.monotonic() + 10
    while not notes.pids() and time.monotonic() < end_s:
        time.sleep(0.05)
    server._supervisor.kill()
    assert gone(notes.pids()[:1])
    server.close()
    assert "supervisor was killed" in server.ended()


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("", "needs a command"),
        ("vllm serve {model}", "does not say {port}"),
        ("vllm 'serve", "cannot be read"),
    ],
)
def test_commands_that_cannot_be_are_refused(text, word):
    with pytest.raises(CbbenchError, match=word.replace("{", r"\{")):
        build_server(settings_for(SERVER, command=text), BuildContext())


def test_words_are_filled_in_and_never_read_by_a_shell():
    words = ["a", "{model}", "--x={port}", '{"json": 1}', "$(reboot)", "a;b"]
    values = {"model": "/m y", "port": "80"}
    assert filled_in(words, values) == ["a", "/m y", "--x=80", '{"json": 1}', "$(reboot)", "a;b"]


@pytest.mark.parametrize("word", ["--api-key sk-1234", "--api-key=sk-1234"])
def test_a_command_that_shows_the_key_is_refused(monkeypatch, word):
    monkeypatch.setenv("K", "sk-1234")
    settings = settings_for(SERVER, command=f"srv {{port}} {word}", api_key_env="K")
    with pytest.raises(CbbenchError, match=r"put \{key\} in its place") as raised:
        build_server(settings, BuildContext())
    assert "sk-1234" not in str(raised.value)


def test_a_command_that_wants_a_key_and_has_none_is_refused():
    with pytest.raises(CbbenchError, match=r"says \{key\}, but no api_key_env"):
        build_server(settings_for(SERVER, command="srv {port} {key}"), BuildContext())


def test_the_key_is_filled_in_and_shown_nowhere(script, notes, monkeypatch):
    monkeypatch.setenv("K", "sk-1234")
    words = command(script, notes) + " {key}"
    engine = build_server(settings_for(SERVER, command=words, api_key_env="K"), BuildContext())
    arguments = psutil.Process(notes.pids()[0]).cmdline()
    told = repr(engine.describe())
    engine.close()
    assert arguments[-1] == "sk-1234"
    assert "{key}" in told
    assert "sk-1234" not in told


SHOUTS = """
import os, sys
print("x" * 1995 + os.environ["K"] + "y" * 30, *"abc", sep="\\n", flush=True)
sys.exit(f"{sys.argv[1:]} bad key {os.environ['K']}")
"""


def test_the_key_is_taken_out_of_the_error_and_of_the_log(tmp_path, monkeypatch, capfd):
    monkeypatch.setenv("K", "sk-1234-5678")
    (tmp_path / "shouts.py").write_text(SHOUTS)
    words = f"{sys.executable} {tmp_path}/shouts.py {{port}} {{key}}"
    settings = settings_for(SERVER, command=words, api_key_env="K")
    with pytest.raises(CbbenchError, match=r"bad key \[key\]") as raised:
        build_server(settings, BuildContext())
    log = capfd.readouterr().err
    assert f"{'x' * 1995}[key]{'y' * 30}\n" in log
    assert "sk-1234" not in log + str(raised.value)


class Caught(Exception):
    pass


@pytest.fixture
def recipe_of(monkeypatch):
    """The recipe that a builder makes, without starting it."""

    def catch(build, entry, context=None, **values):
        def engine(recipe, *_):
            raise Caught(recipe)

        monkeypatch.setattr(managed, "ManagedEngine", engine)
        with pytest.raises(Caught) as caught:
            build(settings_for(entry, **values), context or BuildContext(dtype="float32"))
        return list(caught.value.args[0].command)

    return catch


def pairs(words):
    return list(pairwise(words))


def test_vllm_gets_the_runs_model_format_context_and_memory(recipe_of):
    context = BuildContext(model="m", dtype="bfloat16", kv_memory=1000, max_model_len=256)
    words = recipe_of(
        build_vllm, VLLM, context, python=sys.executable, max_num_seqs=8, args="--enforce-eager"
    )
    assert words[0] == sys.executable
    for pair in (
        ("--model", "{model}"),
        ("--served-model-name", "m"),
        ("--max-num-seqs", "8"),
        ("--kv-cache-memory-bytes", "1000"),
        ("--dtype", "bfloat16"),
        ("--max-model-len", "256"),
    ):
        assert pair in pairs(words)
    assert "--no-enable-prefix-caching" in words
    assert words[-1] == "--enforce-eager"


def test_sglang_gets_the_runs_model_and_shows_its_metrics(recipe_of):
    words = recipe_of(build_sglang, SGLANG, python=sys.executable, max_num_batched_tokens=512)
    assert ("--model-path", "{model}") in pairs(words)
    assert ("--chunked-prefill-size", "512") in pairs(words)
    assert {"--enable-metrics", "--disable-radix-cache"} <= set(words)


def test_our_own_server_serves_the_engine_named(recipe_of):
    words = recipe_of(build_served, SERVED, engine="continuous[max_num_seqs=4]")
    assert ("--engine", "continuous[max_num_seqs=4]") in pairs(words)
    assert ("--dtype", "float32") in pairs(words)


@pytest.mark.parametrize("build", [build_vllm, build_sglang])
def test_a_library_that_is_not_here_is_asked_for_by_its_interpreter(build):
    entry = VLLM if build is build_vllm else SGLANG
    with pytest.raises(CbbenchError, match=r"give its interpreter, as in (vllm|sglang)\[python="):
        build(settings_for(entry), BuildContext())
    with pytest.raises(CbbenchError, match="is no file"):
        build(settings_for(entry, python="/no/such/python"), BuildContext())


def test_a_spec_in_a_spec_is_read_as_one_value():
    text = 'a=served[engine="continuous[max_num_seqs=4,block_size=8]",max_waiting=9]'
    (spec,) = parse_engines(text, {"served": SERVED})
    assert spec.settings["engine"] == "continuous[max_num_seqs=4,block_size=8]"
    assert spec.settings["max_waiting"] == 9
