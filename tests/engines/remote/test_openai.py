"""The engine against servers that behave: schedules, connections, bodies, what it says."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest
from tokenizers.processors import TemplateProcessing

from engines.api import CbbenchError, Outbound, Request, Sampling
from engines.clock import WallClock
from engines.models.text_data import TextData
from engines.models.tiny_tokenizer import tiny_backend
from engines.registry import BuildContext
from engines.remote import texts
from workloads.sources import QueueSource, ScheduledSource

pytestmark = pytest.mark.loopback

TOKEN = {"choices": [{"index": 0, "text": "a", "finish_reason": None}]}
LAST = {"choices": [{"index": 0, "text": "b", "finish_reason": "length"}]}
USAGE = {"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 2}}


async def two_tokens(call):
    await call.stream(TOKEN, LAST, USAGE, "[DONE]")


def test_tokens_and_end_of_a_request_are_delivered(serve, play):
    server = serve()
    played = play(server)
    end = played.sink.ends["r0"]
    assert (end.status, end.finish_reason) == ("ok", "length")
    assert played.sink.ids["r0"] == [-1, -1, -1]
    assert end.stats.served_prompt_tokens == 3
    assert end.stats.counted_by == "usage"
    assert end.token_counts is None
    assert 0 <= end.stats.sent_s <= played.sink.times["r0"][0]


def test_it_is_an_outbound_engine(serve, engine_for):
    assert isinstance(engine_for(serve().url), Outbound)


def test_counts_known_at_the_end_are_told_with_it(serve, play):
    async def script(call):
        three = {"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 9}}
        await call.stream(TOKEN, TOKEN, LAST, three, "[DONE]")

    end = play(serve(script)).sink.ends["r0"]
    assert (end.status, end.token_counts) == ("ok", [3, 3, 3])


def test_first_token_is_timed_when_it_comes_and_not_with_headers_roles_or_comments(serve, play):
    async def script(call):
        await call.begin()
        await call.chunk(b": keep-alive\n\n")
        await call.event({"choices": [{"delta": {"role": "assistant", "content": None}}]})
        await asyncio.sleep(0.12)
        for piece in "abc":
            await call.event({"choices": [{"delta": {"content": piece}}]})
            await asyncio.sleep(0.04)
        await call.event("[DONE]")
        await call.end()

    played = play(serve(script), api="chat")
    times = played.sink.times["r0"]
    assert len(times) == 3
    assert 0.115 <= times[0] < 0.2
    assert times[1] - times[0] == pytest.approx(0.04, abs=0.03)


def test_bytes_of_a_stream_may_be_split_anywhere(serve, play):
    choice = b'{"choices":[{"text":"caf\xc3\xa9","finish_reason":"stop"}]}'
    stream = b"data: " + choice + b"\r\n\r\ndata: [DONE]\r\n\r\n"

    async def script(call):
        await call.begin()
        for i in range(len(stream)):
            await call.chunk(stream[i : i + 1])
        await call.end()

    played = play(serve(script))
    assert played.sink.status() == "ok"
    assert len(played.sink.times["r0"]) == 1


def test_requests_leave_on_their_absolute_schedule(serve, play):
    server = serve()
    requests = [Request(f"r{i}", (9,), 3, scheduled_s=i * 0.005) for i in range(100)]
    played = play(server, requests)
    sent = [played.sink.ends[r.request_id].stats.sent_s for r in requests]
    assert all(s >= r.scheduled_s for s, r in zip(sent, requests, strict=True))
    assert sent[-1] == pytest.approx(0.495, abs=0.1)  # naive sleeping would add up


def test_all_at_once_needs_no_sleep_and_keeps_the_order(serve, play):
    played = play(serve(), 64)
    sent = [played.sink.ends[f"r{i}"].stats.sent_s for i in range(64)]
    assert {end.status for end in played.sink.ends.values()} == {"ok"}
    assert sent == sorted(sent)


def test_150_at_once_are_all_open_at_the_server(serve, play):
    released = asyncio.Event()

    async def script(call):
        if len(server.posts) == 150:
            released.set()
        await released.wait()
        await two_tokens(call)

    server = serve(script)
    played = play(server, 150)
    assert server.most_open >= 150
    assert [end.status for end in played.sink.ends.values()] == ["ok"] * 150


def test_a_cap_below_the_concurrency_asked_holds_the_rest_back_and_shows_as_lag(serve, play):
    async def script(call):
        await asyncio.sleep(0.1)
        await two_tokens(call)

    server = serve(script)
    played = play(server, 4, max_connections=2)
    assert server.most_open <= 2
    lags = sorted(end.stats.sent_s for end in played.sink.ends.values())
    assert lags[1] < 0.09 <= lags[2]


def test_connections_are_few_and_open_before_the_run(serve, play):
    server = serve()
    played = play(server, 50, max_concurrency=5)
    assert len(played.sink.ends) == 50
    assert server.sockets <= 5


def test_prepared_connections_are_there_before_the_first_request(serve, engine_for):
    server = serve()
    engine = engine_for(server.url)
    engine.prepare([Request(f"r{i}", (9,), 3) for i in range(20)], None)
    engine.reset()
    assert server.until(lambda: server.most_open == 20)
    assert server.posts == []


def test_a_server_that_closes_after_each_answer_gets_no_idle_connections(serve, engine_for):
    server = serve()
    server.headers = "connection: close\r\n"
    engine = engine_for(server.url)
    engine.prepare([Request(f"r{i}", (9,), 3) for i in range(20)], None)
    engine.reset()
    assert not server.until(lambda: server.sockets > 2, 0.2)  # models, metrics


def test_a_closed_loop_gets_its_next_request_when_one_ends(serve, play):
    async def script(call):
        await asyncio.sleep(0.05)
        await two_tokens(call)

    played = play(serve(script), 6, max_concurrency=2)
    starts = sorted(end.stats.sent_s for end in played.sink.ends.values())
    assert starts[2] >= 0.05
    assert starts[4] >= 0.1
    assert played.duration_s < 0.6


def test_requests_from_another_thread_are_served(serve, engine_for):
    engine, clock = engine_for(serve().url), WallClock()
    source = QueueSource(clock)

    def feed():
        for i in range(3):
            source.submit(Request(f"r{i}", (9,), 3))
        source.close()

    from_elsewhere = threading.Timer(0.05, feed)
    from_elsewhere.start()
    sink = _Sink()
    engine.run(source, sink, clock)
    from_elsewhere.join()
    assert sink.statuses == {"r0": "ok", "r1": "ok", "r2": "ok"}


def test_a_client_that_leaves_is_cancelled(serve, engine_for):
    gone = threading.Event()

    async def script(call):
        await call.begin()
        await call.event(TOKEN)
        source.cancel("r0")
        source.close()
        while not call.writer.is_closing() and await asyncio.sleep(0.01) is None:
            await call.chunk(b": tick\n\n")

    async def watched(call):
        try:
            await script(call)
        finally:
            gone.set()

    engine, clock = engine_for(serve(watched).url), WallClock()
    source = QueueSource(clock)
    source.submit(Request("r0", (9,), 3))
    sink = _Sink()
    engine.run(source, sink, clock)
    assert sink.statuses == {"r0": "cancelled"}
    assert gone.wait(2)


def test_a_stop_ends_the_run_at_once_and_the_next_run_serves(serve, engine_for):
    async def script(call):
        if call.number == 0:
            await call.begin()
            await call.event(TOKEN)
            threading.Thread(target=engine.stop).start()
            await asyncio.sleep(30)
        await two_tokens(call)

    engine, clock = engine_for(serve(script).url), WallClock()
    requests = [Request("r0", (9,), 3), Request("r1", (9,), 3, scheduled_s=60.0)]
    sink = _Sink()
    engine.run(ScheduledSource(requests, clock), sink, clock)
    assert clock.now() < 5
    assert sink.statuses == {"r0": "cancelled"}
    again = _Sink()
    engine.run(ScheduledSource(requests[:1], clock), again, clock)
    assert again.statuses == {"r0": "ok"}


def test_a_stop_before_the_run_is_not_lost(serve, engine_for):
    engine, clock, sink = engine_for(serve().url), WallClock(), _Sink()
    engine.stop()
    engine.run(ScheduledSource([Request("r0", (9,), 3)], clock), sink, clock)
    assert sink.statuses == {}


def test_a_sink_that_fails_ends_the_run_with_its_error(serve, engine_for):
    class Full:
        def emit(self, events):
            raise CbbenchError("the disk is full")

    engine, clock = engine_for(serve().url), WallClock()
    with pytest.raises(CbbenchError, match="disk is full"):
        engine.run(ScheduledSource([Request("r0", (9,), 3)], clock), Full(), clock)


def test_a_wall_clock_that_jumps_changes_nothing(serve, play, monkeypatch):
    async def script(call):
        await call.begin()
        await call.event(TOKEN)
        monkeypatch.setattr(time, "time", lambda real=time.time: real() - 10)
        await asyncio.sleep(0.05)
        await call.event(LAST)
        await call.end()

    times = play(serve(script)).sink.times["r0"]
    assert 0.04 < times[1] - times[0] < 0.5


def test_token_ids_are_sent_and_lengths_are_asked_for(serve, play):
    server = serve()
    play(server, [Request("r0", (5, 6, 7), 4)])
    body = server.posts[0].body
    assert body["prompt"] == [5, 6, 7]
    assert (body["max_tokens"], body["temperature"], body["stream"]) == (4, 0.0, True)
    assert body["ignore_eos"] is True
    assert body["stream_options"] == {"include_usage": True, "continuous_usage_stats": True}
    assert body["model"] == "m"
    assert server.posts[0].path == "/v1/completions"


def test_only_openais_own_fields_go_out_without_extensions(serve, play):
    server = serve()
    play(server, [Request("r0", (5,), 4, priority=3)], extensions=False)
    assert set(server.posts[0].body) == {
        *("model", "prompt", "max_tokens", "temperature", "stream", "stream_options")
    }
    assert server.posts[0].body["stream_options"] == {"include_usage": True}


def test_sampling_stop_and_priority_are_sent(serve, play):
    server = serve()
    sampling = Sampling(temperature=0.5, top_p=0.9, top_k=7, seed=3)
    play(server, [Request("r0", (5,), None, 0.0, sampling, False, (2,), 1)])
    body = server.posts[0].body
    assert (body["temperature"], body["top_p"], body["top_k"], body["seed"]) == (0.5, 0.9, 7, 3)
    assert (body["stop_token_ids"], body["priority"]) == ([2], 1)
    assert "max_tokens" not in body
    assert "ignore_eos" not in body


def test_the_users_own_fields_win_and_null_takes_one_out(serve, play):
    server = serve()
    play(server, extra_body='{"temperature": 0.7, "ignore_eos": null, "user": "me"}')
    body = server.posts[0].body
    assert (body["temperature"], body["user"]) == (0.7, "me")
    assert "ignore_eos" not in body


def test_chat_gets_text_that_the_models_tokenizer_made(serve, play):
    server = serve()
    played = play(server, [Request("r0", (80, 81, 82), 3)], api="chat")
    (message,) = server.posts[0].body["messages"]
    assert message["role"] == "user"
    assert isinstance(message["content"], str)
    assert message["content"]
    assert server.posts[0].path == "/v1/chat/completions"
    assert any("as text" in note for note in played.engine.describe().notes)


WITHOUT_BOS = len(tiny_backend().encode("hello world", add_special_tokens=False).ids)


@pytest.fixture
def begins_with_bos(monkeypatch):
    """The built-in model's tokenizer, which now puts a token of its own before each text."""
    backend = tiny_backend()
    bos = ("<|bos|>", backend.token_to_id("<|bos|>"))
    backend.post_processor = TemplateProcessing(single="<|bos|> $A", special_tokens=[bos])
    assert len(backend.encode("hello world").ids) == WITHOUT_BOS + 1
    monkeypatch.setattr(texts, "text_data", lambda _: TextData(backend.to_str()))


def test_a_tokenizer_counts_where_the_server_does_not(serve, play, begins_with_bos):
    async def script(call):
        await call.stream(
            *({"choices": [{"text": piece}]} for piece in ("hel", "lo ", "wor", "ld")), "[DONE]"
        )

    end = play(serve(script), tokenizer="tiny").sink.ends["r0"]
    assert end.stats.counted_by == "tokenizer"
    assert sum(end.token_counts) == WITHOUT_BOS


def test_the_model_and_its_context_are_asked_for(serve, engine_for):
    info = engine_for(serve().url).describe()
    assert info.settings["model"] == "m"
    assert info.max_model_len == 512
    assert (info.slots, info.kv_tokens, info.model) == (None, None, None)
    assert info.prompts.vocab_size == 4096
    assert info.prompts.special_token_ids == tuple(range(8))


def test_what_the_user_says_of_the_model_goes_before(serve, engine_for):
    engine = engine_for(serve().url, model="other", vocab_size=100, max_model_len=64)
    info = engine.describe()
    assert (info.settings["model"], info.max_model_len) == ("other", 64)
    assert (info.prompts.vocab_size, info.prompts.special_token_ids) == (100, tuple(range(8)))
    assert any("does not list" in note for note in info.notes)


@pytest.mark.parametrize("models", [{}, [], {"data": None}, {"data": ["m"]}, b"<html>", b"["])
def test_a_server_that_lists_no_models_is_served_all_the_same(serve, engine_for, play, models):
    server = serve()
    server.models = models
    played = play(server)
    assert played.sink.status() == "ok"
    assert played.engine.describe().settings["model"] == "tiny"


def test_an_unknown_model_leaves_a_note_and_no_failure(serve, engine_for):
    context = BuildContext(model="/nowhere/at/all", max_model_len=128)
    info = engine_for(serve().url, context).describe()
    assert info.max_model_len == 128
    assert any("nothing is known here" in note for note in info.notes)


class _Sink:
    def __init__(self):
        self.statuses = {}

    def emit(self, events):
        self.statuses |= {finish.request_id: finish.status for finish in events.finished}
