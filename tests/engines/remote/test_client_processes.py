"""A schedule over several processes: the same answers, each request once, nobody left behind."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import threading

import pytest

from engines.api import CbbenchError, Request
from engines.clock import WallClock
from workloads.sources import QueueSource, ScheduledSource

pytestmark = pytest.mark.loopback

TOKEN = {"choices": [{"index": 0, "text": "a", "finish_reason": None}]}
LAST = {"choices": [{"index": 0, "text": "b", "finish_reason": "length"}]}


async def two_tokens(call):
    await call.stream(TOKEN, LAST, "[DONE]")


def requests(count, gap_s=0.0):
    return [Request(f"r{i}", (9, 10 + i), 2, scheduled_s=i * gap_s) for i in range(count)]


def test_each_request_is_sent_once_and_on_time(serve, play):
    server = serve(two_tokens)
    played = play(server, requests(40, 0.01), client_processes=2)
    assert sorted(call.body["prompt"][1] for call in server.posts) == list(range(10, 50))
    assert {end.status for end in played.sink.ends.values()} == {"ok"}
    assert all(len(times) == 2 for times in played.sink.times.values())
    for request in played.requests:
        sent_s = played.sink.ends[request.request_id].stats.sent_s
        assert request.scheduled_s <= sent_s < request.scheduled_s + 0.5
    assert played.engine.observations()["client"]["processes"] == 2


def test_a_closed_loop_holds_over_all_processes(serve, play):
    asked: list[int] = []  # how many the server works on, as each begins
    now = 0

    async def script(call):
        nonlocal now
        now += 1
        asked.append(now)
        await asyncio.sleep(0.03)
        now -= 1
        await two_tokens(call)

    played = play(serve(script), 12, max_concurrency=3, client_processes=2)
    assert len(played.sink.ends) == 12
    assert max(asked) == 3


def test_the_cap_is_over_all_processes_and_no_process_has_one_of_its_own(serve, play):
    here, most = 0, 0
    all_here = asyncio.Event()

    async def script(call):
        nonlocal here, most
        if call.body["prompt"][1] % 2 == 0:  # every second request, which is one process's share
            here += 1
            most = max(most, here)
            if here == 3:
                all_here.set()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(all_here.wait(), 5)
            here -= 1
        await two_tokens(call)

    played = play(serve(script), requests(6), client_processes=2, max_connections=4)
    assert {end.status for end in played.sink.ends.values()} == {"ok"}
    assert most == 3


def test_requests_that_were_never_prepared_are_sent_too(serve, engine_for):
    engine, clock = engine_for(serve(two_tokens).url, client_processes=2), WallClock()
    source = QueueSource(clock)
    for request in requests(4):
        source.submit(request)
    source.close()
    ends = {}
    engine.run(source, _sink(ends), clock)
    assert ends == dict.fromkeys(("r0", "r1", "r2", "r3"), "ok")


def test_a_stop_ends_all_processes_runs_and_the_next_run_serves(serve, engine_for):
    stopping = threading.Event()

    async def script(call):
        if call.number < 2:
            await call.begin()
            await call.event(TOKEN)
            if call.number == 1 and not stopping.is_set():
                stopping.set()
                threading.Thread(target=engine.stop).start()
            await asyncio.sleep(30)
        await two_tokens(call)

    engine = engine_for(serve(script).url, client_processes=2)
    wanted = [*requests(2), Request("later", (9,), 2, scheduled_s=60.0)]
    engine.prepare(wanted, None)
    clock, ends = WallClock(), {}
    engine.run(ScheduledSource(wanted, clock), _sink(ends), clock)
    assert clock.now() < 5
    assert ends == {"r0": "cancelled", "r1": "cancelled"}
    clock, ends = WallClock(), {}
    engine.run(ScheduledSource(wanted[:2], clock), _sink(ends), clock)
    assert ends == {"r0": "ok", "r1": "ok"}


def test_a_sink_that_fails_ends_the_run_and_leaves_the_processes_usable(serve, engine_for):
    class Full:
        def emit(self, events):
            raise CbbenchError("the disk is full")

    engine = engine_for(serve(two_tokens).url, client_processes=2)
    clock = WallClock()
    with pytest.raises(CbbenchError, match="disk is full"):
        engine.run(ScheduledSource(requests(8), clock), Full(), clock)
    clock, ends = WallClock(), {}
    engine.run(ScheduledSource(requests(8), clock), _sink(ends), clock)
    assert set(ends.values()) == {"ok"}


def test_a_process_that_dies_breaks_the_run_loudly(serve, engine_for):
    async def script(call):
        os.kill(engine._player._processes[0]._child.pid, signal.SIGKILL)
        await asyncio.sleep(30)

    engine = engine_for(serve(script).url, client_processes=2)
    clock = WallClock()
    with pytest.raises(RuntimeError, match="client process has ended"):
        engine.run(ScheduledSource(requests(2), clock), _sink({}), clock)


def test_an_error_inside_a_process_ends_the_run_with_it_and_leaves_all_usable(serve, engine_for):
    engine = engine_for(serve(two_tokens).url, client_processes=2, api="chat")
    met = []

    def run():
        impossible = Request("r0", (-1,), 2)  # no tokenizer makes a text of it
        clock = WallClock()
        try:
            engine.run(ScheduledSource([impossible], clock), _sink({}), clock)
        except RuntimeError as error:
            met.append(str(error))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(30)
    assert not thread.is_alive()
    assert len(met) == 1
    assert "OverflowError" in met[0]
    clock, ends = WallClock(), {}
    engine.run(ScheduledSource(requests(4), clock), _sink(ends), clock)
    assert ends == dict.fromkeys(("r0", "r1", "r2", "r3"), "ok")


def test_what_one_process_cannot_prepare_leaves_no_answer_behind(serve, engine_for):
    engine = engine_for(serve(two_tokens).url, client_processes=2, api="chat")
    with pytest.raises(RuntimeError, match="OverflowError"):
        engine.prepare([Request("bad", (-1,), 2), *requests(1, 0.0)], None)
    assert not any(process.connection.poll(0.5) for process in engine._player._processes)


def test_a_mistake_comes_out_of_a_process_as_one(engine_for, monkeypatch):
    with pytest.raises(CbbenchError, match="tokenizer"):
        engine_for("http://127.0.0.1:9", api="chat", tokenizer="/nowhere", client_processes=2)


def test_the_processes_are_gone_after_close(serve, engine_for):
    engine = engine_for(serve(two_tokens).url, client_processes=2)
    children = [process._child for process in engine._player._processes]
    engine.close()
    assert [child.poll() for child in children] == [0, 0]


def _sink(ends):
    class Sink:
        def emit(self, events):
            ends.update({finish.request_id: finish.status for finish in events.finished})

    return Sink()
