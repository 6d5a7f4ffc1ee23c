"""Who may come in, how much they may send, and how many may wait."""

from __future__ import annotations

import asyncio
import json

import httpx
import pytest

from harness.server.bounded_body import BodyLimits
from harness.server.errors import ApiError
from harness.server.guards import Guards

KEY = "sk-very-secret-0123456789"


@pytest.fixture(scope="module")
def locked(start_module):
    """Needs a key and takes bodies of up to 10 000 bytes."""
    return start_module("echo", "--api-key-env", "MY_KEY", "--max-body", "10000", MY_KEY=KEY)


def ask(server, **headers):
    return httpx.post(
        f"{server.url}/v1/completions",
        json={"prompt": "a", "max_tokens": 1},
        headers=headers,
        trust_env=False,
    )


@pytest.mark.loopback
@pytest.mark.parametrize(
    "header", [None, "", "Bearer", f"Bearer {KEY}x", f"Basic {KEY}", KEY, "Bearer é"]
)
def test_a_missing_or_wrong_key_is_a_401(locked, header):
    response = ask(locked, **({} if header is None else {"Authorization": header.encode()}))
    assert response.status_code == 401
    assert response.json()["error"]["code"] == "invalid_api_key"
    assert response.headers["www-authenticate"] == "Bearer"


@pytest.mark.loopback
def test_the_right_key_opens_and_watching_needs_none(locked):
    assert ask(locked, Authorization=f"Bearer {KEY}").status_code == 200
    assert ask(locked, Authorization=f"bearer {KEY}").status_code == 200
    assert locked.get("/v1/models").status_code == 401
    assert [locked.get(path).status_code for path in ("/health", "/ready", "/metrics")] == [200] * 3


@pytest.mark.loopback
def test_the_key_is_nowhere_to_be_read(locked):
    ask(locked, Authorization=f"Bearer {KEY}x")
    assert KEY not in "\n".join(locked.lines)
    assert KEY not in locked.get("/metrics").text


@pytest.mark.loopback
@pytest.mark.parametrize("variable", ["NOT_SET_AT_ALL", "EMPTY"])
def test_a_key_that_is_not_there_is_a_mistake(start, variable):
    server = start("echo", "--api-key-env", variable, ready=False, EMPTY="")
    assert server.wait() == 2
    server.is_ready.wait()
    assert f"--api-key-env names '{variable}'" in server.lines[-1]


@pytest.mark.loopback
@pytest.mark.parametrize("chunked", [False, True])
def test_a_body_that_is_too_large_is_a_413(locked, chunked):
    body = json.dumps({"prompt": "a" * 20_000, "max_tokens": 1}).encode()
    parts = [body[i : i + 4096] for i in range(0, len(body), 4096)]
    response = httpx.post(
        f"{locked.url}/v1/completions",
        content=iter(parts) if chunked else body,
        headers={"Authorization": f"Bearer {KEY}", "Content-Type": "application/json"},
        trust_env=False,
    )
    assert response.status_code == 413
    assert response.json()["error"]["message"] == "the body is larger than 10000 bytes"
    assert response.headers["connection"] == "close"


def guarded(within_s, *parts, length=None):
    """The status that a body in `parts` leads to; `None` stands for a part that never comes."""
    sent = []
    waiting = list(parts)

    async def app(scope, receive, send):
        while (await receive()).get("more_body"):
            pass
        raise AssertionError("the body was taken")

    async def receive():
        part = waiting.pop(0)
        if part is None:
            await asyncio.Event().wait()
        return {"type": "http.request", "body": part, "more_body": True}

    async def send(message):
        sent.append(message)

    guards = Guards(
        app,
        api_key=None,
        limits=BodyLimits(most_bytes=10, within_s=within_s),
        count=lambda path, status: None,
    )
    headers = [] if length is None else [(b"content-length", str(length).encode())]
    scope = {"type": "http", "path": "/v1/completions", "headers": headers}
    asyncio.run(guards(scope, receive, send))
    return sent[0]["status"]


def test_a_length_that_is_too_large_is_refused_unread():
    assert guarded(60, length=11) == 413


def test_a_body_that_does_not_come_is_a_408():
    with pytest.raises(ApiError) as caught:
        guarded(0.01, b"12345", None)
    assert caught.value.status_code == 408


def test_a_body_that_trickles_is_bounded_as_a_whole():
    with pytest.raises(ApiError) as caught:
        guarded(60, b"12345", b"12345", b"1")
    assert caught.value.status_code == 413


@pytest.mark.loopback
def test_a_full_queue_is_a_429_that_says_when_to_come_back(start):
    server = start("echo[slots=1,step_ms=20]", "--max-waiting", "1")
    with (
        server.stream(prompt=[500], max_tokens=400) as running,
        httpx.Client(trust_env=False, timeout=60) as client,
    ):
        lines = running.iter_lines()
        next(lines)
        assert server.metric("num_requests_waiting") == 0
        too_many = server.post(prompt=[[500], [600]], max_tokens=1)
        assert too_many.status_code == 429
        assert int(too_many.headers["retry-after"]) >= 1
        assert too_many.json()["error"]["type"] == "rate_limit_error"
        never = server.post(prompt=[[500], [600], [700]], max_tokens=1)
        assert (never.status_code, never.json()["error"]["param"]) == (400, "prompt")
        url = f"{server.url}/v1/completions"
        with pytest.raises(httpx.ReadTimeout):
            client.post(url, json={"prompt": [600], "max_tokens": 1}, timeout=0.2)
        next(lines)
    assert server.post(prompt=[[500], [600]], max_tokens=1).status_code == 200
