"""Signals, deaths, broken steps: the server drains, fails what it must, and never hangs."""

from __future__ import annotations

import signal
import socket
import sys
import threading
import time

import httpx
import psutil
import pytest

pytestmark = pytest.mark.loopback

RAISES, DIES, RAISES_FIRST = 3999, 3998, 3996
LIMIT_S = 60


def wait_until(holds):
    pause = threading.Event()
    deadline_s = time.monotonic() + LIMIT_S
    while not holds():
        assert time.monotonic() < deadline_s, "it did not come to that"
        pause.wait(0.02)


def engine_of(server):
    children = psutil.Process(server.process.pid).children()
    (engine,) = [c for c in children if "multiprocessing.spawn" in " ".join(c.cmdline())]
    return engine


def gone(process):
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def begin(stream):
    """The stream's lines, to be kept: a stream that nobody iterates over is closed."""
    lines = stream.iter_lines()
    next(lines)
    return lines


def test_sigterm_drains_refuses_newcomers_and_exits_with_0(start):
    server = start("echo[step_ms=20]")
    engine = engine_of(server)
    with server.stream(prompt=[500], max_tokens=40) as stream:
        lines = begin(stream)
        server.process.send_signal(signal.SIGTERM)
        wait_until(lambda: server.get("/ready").status_code == 503)
        refused = server.post(prompt="a", max_tokens=1)
        assert refused.status_code == 503
        assert int(refused.headers["retry-after"]) >= 1
        assert server.get("/health").json() == {"status": "draining"}
        assert "data: [DONE]" in list(lines)
    assert server.wait() == 0
    wait_until(lambda: gone(engine))
    assert "closed in good order" in server.lines


def test_a_second_signal_ends_at_once(start):
    server = start("echo[step_ms=20]")
    engine = engine_of(server)
    with server.stream(prompt=[500], max_tokens=500) as stream:
        lines = begin(stream)
        server.process.send_signal(signal.SIGTERM)
        wait_until(lambda: server.get("/ready").status_code == 503)
        next(lines)
        server.process.send_signal(signal.SIGTERM)
        assert server.wait() == 128 + signal.SIGTERM  # a drained server's would be 0
    wait_until(lambda: gone(engine))


IMPATIENT = """
import functools
from harness.cli import main
from harness.server import options, serve
options.Limits = functools.partial(options.Limits, longest_silence_s=1.0)
serve._CLOSE_WITHIN_S = 0.5
main.main()
"""


def test_an_engine_that_is_stuck_does_not_keep_the_server_from_ending(start):
    server = start("echo[step_ms=900000]", command=[sys.executable, "-c", IMPATIENT, "serve"])
    engine = engine_of(server)
    answers = []
    client = threading.Thread(
        target=lambda: answers.append(server.post(prompt=[500], max_tokens=5)), daemon=True
    )
    client.start()
    wait_until(lambda: server.metric("num_requests_waiting") == 1)
    server.process.send_signal(signal.SIGTERM)
    assert server.wait() == 1
    client.join(LIMIT_S)
    assert answers[0].status_code == 500
    assert "has made no step" in answers[0].json()["error"]["message"]
    wait_until(lambda: gone(engine))


def test_ctrl_c_drains_too(start):
    server = start("echo")
    server.process.send_signal(signal.SIGINT)
    assert server.wait() == 130


def test_a_signal_while_the_model_loads_ends_the_server(start):
    server = start("echo[fault=slow-load]", ready=False)
    wait_until(lambda: any("loading" in line for line in server.lines))
    engine = engine_of(server)
    server.process.send_signal(signal.SIGTERM)
    assert server.wait() == 0
    wait_until(lambda: gone(engine))


def test_a_killed_engine_ends_its_requests_and_the_server(start):
    server = start("echo[step_ms=20]")
    engine = engine_of(server)
    with server.stream(prompt=[500], max_tokens=500) as stream:
        lines = begin(stream)
        engine.kill()
        rest = "\n".join(lines)
        assert "SIGKILL" in rest
        assert rest.count("data: ") < 400  # of the 500 tokens that were asked for
        assert "[DONE]" not in rest
    assert server.wait() == 1
    assert any(line.startswith("error: the engine's process") for line in server.lines)


def test_a_killed_server_takes_its_engine_along(start):
    server = start("echo[step_ms=20]")
    engine = engine_of(server)
    server.process.kill()
    server.wait()
    wait_until(lambda: gone(engine))


def test_an_engine_that_dies_in_a_step_is_an_error_for_everybody(start):
    server = start("echo[step_ms=20]")
    response = server.post(prompt=[DIES], max_tokens=9)
    assert response.status_code == 500
    assert "SIGKILL" in response.json()["error"]["message"]
    assert server.wait() == 1


def test_a_step_that_raises_fails_its_requests_and_the_server_lives_on(start):
    server = start("echo[step_ms=20]")
    with server.stream(prompt=[500], max_tokens=500) as beside:
        lines = begin(beside)
        broken = server.post(prompt=[RAISES], max_tokens=9)
        assert broken.status_code == 500
        assert "broke in a step" in broken.json()["error"]["message"]
        assert "broke in a step" in "\n".join(lines)
    assert server.post(prompt=[500], max_tokens=3).status_code == 200
    assert server.metric("step_failures_total") == 1
    assert server.metric("num_requests_running") == 0


def test_an_engine_that_fails_again_and_again_ends_the_server(start):
    server = start("echo")
    for _ in range(3):
        assert server.post(prompt=[RAISES_FIRST], max_tokens=9).status_code == 500
    assert server.wait() == 1


def test_tokens_between_two_failures_count_as_life(start):
    server = start("echo")
    for _ in range(4):
        assert server.post(prompt=[RAISES_FIRST], max_tokens=9).status_code == 500
        assert server.post(prompt=[500], max_tokens=2).status_code == 200
    assert server.get("/health").status_code == 200


@pytest.mark.parametrize(
    ("engine", "code", "says"),
    [
        ("echo[fault=mistake]", 2, "error: the fake model is not here; give another"),
        ("echo[fault=crash]", 1, "broke while loading"),
        ("nothing", 2, "unknown engine 'nothing'"),
        ("echo,hashing", 2, "expected one"),
    ],
)
def test_an_engine_that_cannot_be_built_ends_the_server(start, engine, code, says):
    server = start(engine, ready=False)
    assert server.wait() == code
    wait_until(server.is_ready.is_set)
    assert says in "\n".join(server.lines)


def test_a_port_in_use_is_said_at_once(start):
    server = start("echo")
    other = start("echo[fault=slow-load]", "--port", str(server.port), ready=False)
    assert other.wait() == 2
    wait_until(other.is_ready.is_set)
    assert f"port {server.port}" in other.lines[-1]


def test_while_the_model_loads_all_but_metrics_say_503(start):
    port = free_port()
    server = start("echo[fault=slow-load]", "--port", str(port), ready=False)
    server.url = f"http://127.0.0.1:{port}"
    wait_until(lambda: any("loading" in line for line in server.lines))
    wait_until(lambda: answers(server))
    assert server.get("/health").status_code == 503
    assert server.get("/ready").status_code == 503
    assert server.post(prompt="a").status_code == 503
    assert server.get("/v1/models").status_code == 503


def answers(server):
    try:
        return server.get("/metrics").status_code == 200
    except httpx.TransportError:
        return False


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def test_it_listens_on_loopback_only(echo):
    listening = [
        c.laddr.ip
        for c in psutil.Process(echo.process.pid).net_connections("tcp")
        if c.status == psutil.CONN_LISTEN
    ]
    assert listening == ["127.0.0.1"]
