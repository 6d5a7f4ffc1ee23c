"""Small pages of servers that never come to an end, in time or in size: nobody waits for them."""

from __future__ import annotations

import asyncio
import json
import threading

import pytest

from engines.remote import discovery, scrape
from engines.remote.discovery import reset_caches
from engines.remote.scrape import Scraper, fetch_page

pytestmark = pytest.mark.loopback

MODELS = json.dumps({"data": [{"id": "m", "owned_by": "vllm"}]}).encode()
METRICS = b"vllm:num_requests_running 3\n"
HEAD = b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n"


def slowly(page):
    """A blank every now and then, and in the end the page; too late for anybody's patience."""

    async def script(call):
        await call.raw(HEAD)
        for _ in range(40):
            await call.raw(b" ")
            await asyncio.sleep(0.1)
        await call.raw(b"\n" + page)
        call.writer.close()

    return script


def at_length(page):
    """Megabytes of blanks before the page."""

    async def script(call):
        await call.raw(HEAD)
        for _ in range(12):
            await call.raw(b" " * 2**20)
        await call.raw(b"\n" + page)
        call.writer.close()

    return script


@pytest.fixture(autouse=True)
def _hurry(monkeypatch):
    monkeypatch.setattr(discovery, "_PATIENCE_S", 0.5)
    monkeypatch.setattr(scrape, "_PATIENCE_S", 0.5)


@pytest.mark.parametrize("manner", [slowly, at_length])
def test_models_that_never_end_are_unknown(serve, engine_for, manner):
    server = serve()
    server.pages["/v1/models"] = manner(MODELS)
    info = engine_for(server.url).describe()
    assert info.settings["server"] == "unknown"
    assert any("did not answer before the run" in note for note in info.notes)


@pytest.mark.parametrize("manner", [slowly, at_length])
def test_a_reset_that_never_ends_is_none(serve, engine_for, manner):
    server = serve()
    server.pages["/reset_prefix_cache"] = manner(b"{}")
    client = engine_for(server.url)._client
    root = server.url.removesuffix("/v1")
    assert client.call(reset_caches(client.http, root, "vllm")) is False


@pytest.mark.parametrize("manner", [slowly, at_length])
def test_metrics_that_never_end_say_nothing(serve, engine_for, manner):
    server = serve()
    server.pages["/metrics"] = manner(METRICS)
    client = engine_for(server.url)._client
    assert client.call(fetch_page(client.http, server.url.removesuffix("/v1"))) == ""


@pytest.mark.parametrize("manner", [slowly, at_length])
def test_looks_that_never_end_are_missed_ones(serve, manner):
    server = serve()
    server.pages["/metrics"] = manner(METRICS)
    scraper = Scraper(server.url.removesuffix("/v1"), None)
    scraper.begin(METRICS.decode())
    scraper.watch()
    assert server.until(lambda: len(server.calls) >= 3, 20.0)
    scraper.unwatch()
    told = scraper.report(METRICS.decode())
    assert told["missed_scrapes"] >= 1
    assert told["running"] is None


def test_a_look_that_hangs_in_its_head_holds_no_run_up_and_is_not_the_next_ones(serve):
    asked, over = threading.Event(), threading.Event()

    async def script(call):
        asked.set()
        await call.raw(b"HTTP/1.1 200 OK\r\nconnection: close\r\nx-slow: ")
        for _ in range(60):
            await call.raw(b"x")
            await asyncio.sleep(0.1)
        over.set()
        await call.raw(b"\r\n\r\n" + METRICS)
        call.writer.close()

    server = serve()
    server.pages["/metrics"] = script
    scraper = Scraper(server.url.removesuffix("/v1"), None)
    scraper.begin(METRICS.decode())
    scraper.watch()
    assert asked.wait(20)
    scraper.unwatch()
    assert not over.is_set()
    scraper.begin(METRICS.decode())
    assert over.wait(30)
    assert scraper.report(METRICS.decode())["running"] is None
