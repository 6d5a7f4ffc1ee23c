"""Clients that leave, or read too slowly, take their requests out of the engine."""

from __future__ import annotations

import asyncio
import json
import math
import random
import socket
import threading
import time
from contextlib import contextmanager

import httpx
import psutil
import pytest

pytestmark = pytest.mark.loopback

LIMIT_S = 60
NUM_BLOCKS = 256


def wait_until(holds, within_s=LIMIT_S):
    pause = threading.Event()
    deadline_s = time.monotonic() + within_s
    while not holds():
        assert time.monotonic() < deadline_s, "it did not come to that"
        pause.wait(0.02)


@contextmanager
def caller(server, receive_buffer=None, **body):
    """A client that has sent its request and reads nothing by itself."""
    content = json.dumps(body).encode()
    head = (
        "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(content)}\r\n\r\n"
    )
    with socket.socket() as client:
        if receive_buffer is not None:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        client.settimeout(LIMIT_S)
        client.connect(("127.0.0.1", server.port))
        client.sendall(head.encode() + content)
        yield client


def begin(stream):
    """The stream's lines, which must be kept: a stream that nobody iterates over is closed."""
    lines = stream.iter_lines()
    next(lines)
    return lines


def read_all(client):
    while client.recv(65536):
        pass


def aborted(server):
    return server.metric("request_success_total", finished_reason="abort")


def running(server):
    return server.metric("num_requests_running")


def waiting(server):
    return server.metric("num_requests_waiting")


def blocks_in_use(server):
    return round(server.metric("kv_cache_usage_perc") * NUM_BLOCKS)


def check_that_no_block_is_leaked(server):
    """Whoever has blocks beside a lone request has leaked them."""
    wait_until(lambda: running(server) + waiting(server) == 0)
    before = server.metric("generation_tokens_total")
    with server.stream(prompt=[500] * 20, max_tokens=3000, ignore_eos=True) as stream:
        lines = begin(stream)
        scrape = server.get("/metrics").text
        given = server.metric("generation_tokens_total", scrape) - before
        held = server.metric("kv_cache_usage_perc", scrape) * NUM_BLOCKS
        assert held == math.ceil((20 + given - 1) / 16)
        next(lines)


@pytest.fixture(scope="module")
def loop_server(start_module):
    """The real step loop, a step each 20 ms or so, two requests at once."""
    return start_module(f"hashing[step_ms=20,slots=2,num_blocks={NUM_BLOCKS}]")


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
def test_a_running_client_that_leaves_frees_its_blocks_within_a_step(loop_server, stream):
    server = loop_server
    before = aborted(server)
    with server.stream(prompt=[500] * 10, max_tokens=1000) as beside:
        lines = begin(beside)
        with caller(server, prompt=[501] * 400, max_tokens=1000, stream=stream):
            wait_until(lambda: running(server) == 2)
            assert blocks_in_use(server) > 25
        wait_until(lambda: aborted(server) == before + 1, within_s=1)
        next(lines), next(lines), next(lines)
        wait_until(lambda: blocks_in_use(server) < 25, within_s=1)
        assert running(server) == 1
        next(lines)
    check_that_no_block_is_leaked(server)


def test_a_queued_client_that_leaves_is_never_run(loop_server):
    server = loop_server
    with (
        server.stream(prompt=[500] * 10, max_tokens=1000) as one,
        server.stream(prompt=[501] * 10, max_tokens=1000) as two,
    ):
        kept = [begin(one), begin(two)]
        before = aborted(server)
        with caller(server, prompt=[502] * 400, max_tokens=10):
            wait_until(lambda: waiting(server) == 1)
        wait_until(lambda: aborted(server) == before + 1, within_s=1)
        assert (running(server), waiting(server)) == (2, 0)
        for lines in kept:
            next(lines)
    check_that_no_block_is_leaked(server)


def test_a_batch_whose_client_leaves_is_gone_as_a_whole(loop_server):
    server = loop_server
    before = aborted(server)
    with caller(server, prompt=[[500] * 20, [501] * 20, [502] * 20], max_tokens=900, stream=True):
        wait_until(lambda: (running(server), waiting(server)) == (2, 1))
    wait_until(lambda: aborted(server) == before + 3, within_s=1)
    check_that_no_block_is_leaked(server)


def test_a_stop_string_ends_the_request_in_the_engine(loop_server, tokenizer):
    server = loop_server
    ask = {"prompt": [500] * 20, "max_tokens": 1000, "temperature": 0}
    first = server.post(**ask | {"max_tokens": 20}).json()["choices"][0]["text"]
    answer = server.post(**ask, stop=first[6:12]).json()
    assert answer["choices"][0]["text"] == first[: first.index(first[6:12])]
    assert answer["usage"]["completion_tokens"] <= 20
    check_that_no_block_is_leaked(server)


def test_a_reader_that_reads_nothing_is_cut_off(start):
    server = start("echo[burst=50]", "--max-model-len", "100000000")
    word = 2000
    body = {"prompt": [word], "max_tokens": 90_000_000, "stream": True, "return_token_ids": True}
    with caller(server, receive_buffer=4096, **body) as client:
        wait_until(lambda: aborted(server) == 1)
        assert running(server) == 0
        with pytest.raises(ConnectionResetError):
            read_all(client)
    assert server.post(prompt=[word], max_tokens=5).status_code == 200


def test_a_reader_that_keeps_up_gets_all_of_it(start, tokenizer):
    server = start("echo[burst=50]", "--max-model-len", "100000")
    events = server.events(prompt=[2000], max_tokens=50_000, stream_options={"include_usage": True})
    assert server.text_of(events) == tokenizer.decode([2000]) * 50_000
    assert events[-2]["usage"]["completion_tokens"] == 50_000


async def one_client(client, url, number, rng):
    """Two thirds read to the end; one third leaves in the middle, or before the first token."""
    count = rng.randint(5, 40)
    body = {
        "prompt": [500 + number % 50] * rng.randint(1, 60),
        "max_tokens": count,
        "ignore_eos": True,
        "stream": rng.random() < 0.7,
    }
    leaves = number % 3 == 0
    if leaves and not body["stream"]:
        with pytest.raises(httpx.TimeoutException):
            await client.post(url, json=body | {"max_tokens": 4000}, timeout=0.05)
        return "left"
    async with client.stream("POST", url, json=body) as response:
        assert response.status_code == 200
        lines = [line async for line in _first(response.aiter_lines(), 3 if leaves else None)]
    if leaves:
        return "left"
    if body["stream"]:
        assert lines[-2] == "data: [DONE]" or lines[-1] == "data: [DONE]"
    else:
        assert json.loads(lines[0])["usage"]["completion_tokens"] == count
    return "ok"


async def _first(lines, count):
    seen = 0
    async for line in lines:
        yield line
        seen += 1
        if seen == count:
            return


async def many_clients(url, numbers, at_once):
    rng = random.Random(5)
    gate = asyncio.Semaphore(at_once)
    ends = []

    async def go(number):
        async with gate:
            ends.append(await one_client(client, url, number, rng))

    limits = httpx.Limits(max_connections=at_once)
    async with httpx.AsyncClient(timeout=LIMIT_S, limits=limits, trust_env=False) as client:
        await asyncio.gather(*(go(number) for number in numbers))
    return ends


def memory_of(server):
    """Resident bytes of the HTTP process and of the engine's."""
    processes = [psutil.Process(server.process.pid)]
    processes += processes[0].children()
    return [process.memory_info().rss for process in processes]


def test_a_hundred_requests_of_which_a_third_leave_end_cleanly(start):
    server = start(f"hashing[step_ms=1,slots=16,num_blocks={NUM_BLOCKS}]")
    ends = asyncio.run(many_clients(f"{server.url}/v1/completions", range(100), 24))
    assert (ends.count("left"), ends.count("ok")) == (34, 66)
    check_that_no_block_is_leaked(server)
    assert server.metric("request_success_total", finished_reason="length") >= 66


@pytest.mark.parametrize(
    "number", [300, pytest.param(1000, marks=pytest.mark.slow)], ids=["short", "long"]
)
def test_twice_as_many_requests_leave_no_block_no_request_and_no_memory(start, number):
    """A leak of 10 KiB a request is seen."""
    server = start(f"hashing[step_ms=1,slots=16,num_blocks={NUM_BLOCKS}]")
    url = f"{server.url}/v1/completions"
    asyncio.run(many_clients(url, range(number), 32))
    check_that_no_block_is_leaked(server)
    before = memory_of(server)
    ends = asyncio.run(many_clients(url, range(number), 32))
    check_that_no_block_is_leaked(server)
    assert len(ends) == number
    grown = [after - then for after, then in zip(memory_of(server), before, strict=True)]
    print("grown by", grown, "bytes, from", before)
    assert max(grown) < number * 10 * 2**10
