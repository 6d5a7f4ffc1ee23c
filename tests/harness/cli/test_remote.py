"""`cbbench run` against servers elsewhere: one that paces tokens, and one that is down."""

from __future__ import annotations

import json
import socket
import subprocess
import sys

import pytest

from engines.remote.noop_server import LISTENING
from harness.results.file import read_run

pytestmark = pytest.mark.loopback


@pytest.fixture
def noop():
    """The base URL of a no-op server in a process of its own."""
    command = [sys.executable, "-m", "engines.remote.noop_server", "--gap-ms", "5"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        line = process.stdout.readline()
        assert line.startswith(LISTENING)
        yield f"http://127.0.0.1:{line.removeprefix(LISTENING).strip()}/v1"
        process.terminate()


def run_of(folder):
    def refuse(word):
        raise ValueError(word)

    json.loads((folder / "run.json").read_text(), parse_constant=refuse)
    return read_run(folder)


def test_a_server_elsewhere_is_measured_like_any_engine(call, noop, tmp_path, small):
    done = call("run", "--engines", f"away=openai[base_url={noop}]", *small, "--out", "run")
    assert done.returncode == 0
    run = run_of(tmp_path / "run")
    for result in run.results:
        assert (result.counts.offered, result.counts.ok) == (6, 6)
        assert result.tpot_s.p50 == pytest.approx(0.005, abs=0.004)
        assert result.lag_s.n == 6
        assert (result.ledger, result.slot_utilisation, result.steps) == (None, None, None)
        assert "output tokens asked for" not in " ".join(result.verdict.reasons)
    info = run.engines["away"]
    assert info.settings["base_url"] == noop
    assert (info.slots, info.kv_tokens, info.model) == (None, None, None)


def test_beside_an_engine_with_a_model_that_models_prompts_are_used(call, noop, tmp_path, small):
    engines = f"fake,away=openai[base_url={noop}]"
    assert call("run", "--engines", engines, *small, "--out", "run").returncode == 0
    run = run_of(tmp_path / "run")
    assert {result.engine: result.counts.ok for result in run.results} == {"fake": 6, "away": 6}


def test_a_server_of_the_users_is_started_measured_and_ended(call, tmp_path, small):
    command = f"{sys.executable} -m engines.remote.noop_server --port {{port}} --gap-ms 5"
    done = call("run", "--engines", f'mine=server[command="{command}"]', *small, "--out", "run")
    assert done.returncode == 0
    run = run_of(tmp_path / "run")
    assert {result.counts.ok for result in run.results} == {6}
    assert sys.executable not in (tmp_path / "run" / "run.json").read_text()
    assert "engines.remote.noop_server" in run.engines["mine"].settings["command"]
    assert (tmp_path / "run" / "logs" / "mine.log").read_text().count("listening on port") == 1


def test_a_command_that_fails_is_a_mistake_with_its_last_words(call, small):
    command = f"{sys.executable} -c 'print(1 / 0)' {{port}}"
    done = call("run", "--engines", f'server[command="{command}"]', *small)
    assert done.returncode == 2
    assert "ZeroDivisionError" in done.stderr


def test_a_run_over_http_tells_its_certificate_and_its_client(call, noop, tmp_path, small):
    rate = ["--request-rate", "50", "--client-processes", "2"]
    engines = f"away=openai[base_url={noop}]"
    assert call("run", "--engines", engines, *small, *rate, "--out", "run").returncode == 0
    (result,) = run_of(tmp_path / "run").results
    assert result.client.processes == 2
    assert result.client.certificate.requests == 6
    assert result.client.counted_by == {"usage": 6}
    report = (tmp_path / "run" / "report.md").read_text()
    assert "## Over HTTP" in report
    assert "The client, certified against a server without a model before the run:" in report
    assert "usage 6" in report


def test_a_server_that_is_down_gives_a_report_and_exit_code_1(call, tmp_path, small):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{taken.getsockname()[1]}"
        done = call("run", "--engines", f"openai[base_url={address}]", *small, "--out", "run")
    assert done.returncode == 1
    assert "0 of 6 requests succeeded" in done.stdout
    assert "Traceback" not in done.stdout + done.stderr
    (result,) = run_of(tmp_path / "run").results
    assert (result.counts.ok, result.counts.failed) == (0, 6)
    assert result.request_throughput_req_s == 0
    assert (result.ttft_s.n, result.ttft_s.p50) == (0, None)
    (reasons,) = result.reasons.values()
    assert "Connect call failed" in next(iter(reasons))


@pytest.mark.parametrize(
    ("settings", "word"),
    [
        ("base_url=ftp://x", "an http or https address"),
        ("base_url=http://me:secret@x/v1", "without a user"),
        ("base_url=http://x/v1?key=1", "without ? and #"),
        ("api_key_env=sk-123", "the name of an environment variable"),
        ("extra_body=[1]", "a JSON object"),
        ("idle_timeout=0", "a finite number > 0"),
        ("api=chat,send_token_ids=true", "chat takes texts only"),
        ("api_key_env=CBBENCH_NO_SUCH_KEY", "holds no key"),
    ],
)
def test_a_mistake_in_the_settings_is_told(call, small, settings, word):
    done = call("run", "--engines", f"openai[{settings}]", *small)
    assert done.returncode == 2
    assert word in done.stderr
    assert "secret" not in done.stderr.replace("me:secret@x", "")
