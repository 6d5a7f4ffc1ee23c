"""The engine against servers that break, stall, babble, and lie about the format."""

from __future__ import annotations

import asyncio
import socket

import pytest

from engines.api import CbbenchError

pytestmark = pytest.mark.loopback


def text(piece, finish=None):
    return {"choices": [{"index": 0, "text": piece, "finish_reason": finish}]}


def usage(tokens, choices=()):
    return {"choices": choices, "usage": {"prompt_tokens": 3, "completion_tokens": tokens}}


async def good(call):
    await call.stream(text("a"), text("b", "length"), usage(2), "[DONE]")


def only_first(bad):
    """`bad` for the first request, a good answer for those after it."""

    async def script(call):
        await (bad(call) if call.number == 0 else good(call))

    return script


def outcome(played, name="r0"):
    end = played.sink.ends[name]
    return end.status, end.reason


async def resets_at_once(call):
    call.writer.transport.abort()


async def closes_without_an_answer(call):
    call.writer.close()


async def resets_in_the_stream(call):
    await call.begin()
    await call.event(text("a"))
    await asyncio.sleep(0.02)
    call.writer.transport.abort()


async def closes_in_the_stream(call):
    await call.begin()
    await call.event(text("a"))
    call.writer.close()


async def ends_without_an_end(call):
    await call.stream(text("a"), text("b"))


async def ends_in_an_event(call):
    await call.begin()
    await call.chunk(b'data: {"choices": [{"te')
    await call.end()


async def speaks_no_http(call):
    await call.raw(b"220 mail.example ESMTP\r\n\r\n")
    call.writer.close()


async def breaks_the_chunked_encoding(call):
    await call.begin()
    await asyncio.sleep(0.05)
    await call.raw(b"zz\r\nnot a length\r\n")
    call.writer.close()


async def sends_a_page(call):
    await call.reply(200, b"<html>welcome</html>")


async def sends_nothing(call):
    await call.stream()


async def sends_only_an_end(call):
    await call.stream("[DONE]")


async def sends_an_endless_header(call):
    await call.raw(b"HTTP/1.1 200 OK\r\n" + b"x" * 100_000)
    call.writer.close()


async def errs_in_the_stream(call):
    await call.stream(text("a"), {"error": {"message": "boom"}}, "[DONE]")


async def errs_at_first(call):
    await call.stream({"error": "boom"}, "[DONE]")


async def errs_in_a_body(call):
    await call.reply(200, {"error": {"message": "boom"}})


async def redirects(call):
    await call.reply(307, {}, "location: http://127.0.0.1:9/\r\n")


async def is_overloaded(call):
    await call.reply(429, {"error": {"message": "the queue is full"}})


async def drains(call):
    await call.reply(503, {"error": {"message": "draining"}})


async def drains_in_latin_1(call):
    await call.raw(b"HTTP/1.1 503 Service indispos\xe9\r\ncontent-length: 4\r\n\r\nbusy")


async def finds_a_mistake(call):
    await call.reply(400, {"error": {"message": "temperature is wrong"}})


async def fails_inside(call):
    await call.reply(500, b"Internal Server Error")


@pytest.mark.parametrize(
    ("bad", "word"),
    [
        (resets_at_once, "no answer"),
        (closes_without_an_answer, "no answer"),
        (resets_in_the_stream, "the stream broke"),
        (closes_in_the_stream, "the stream broke"),
        (ends_without_an_end, "cut short"),
        (ends_in_an_event, "not JSON"),
        (speaks_no_http, "no answer"),
        (breaks_the_chunked_encoding, "the stream broke"),
        (sends_a_page, "not JSON"),
        (sends_nothing, "cut short"),
        (sends_only_an_end, "empty"),
        (sends_an_endless_header, "no answer"),
        (errs_in_the_stream, "boom"),
        (errs_at_first, "boom"),
        (errs_in_a_body, "boom"),
        (redirects, "HTTP 307: redirected to http://127.0.0.1:9/"),
        (is_overloaded, "overload, HTTP 429: the queue is full"),
        (drains, "overload, HTTP 503: draining"),
        (drains_in_latin_1, "overload, HTTP 503: busy"),
        (finds_a_mistake, "HTTP 400: temperature is wrong"),
        (fails_inside, "HTTP 500: Internal Server Error"),
    ],
)
def test_a_broken_answer_fails_its_own_request_with_a_reason(serve, play, bad, word):
    played = play(serve(only_first(bad)), 3, max_concurrency=1)
    status, reason = outcome(played)
    assert status == "failed"
    assert word in reason
    assert "\n" not in reason
    assert {outcome(played, name)[0] for name in ("r1", "r2")} == {"ok"}


@pytest.mark.parametrize(
    "stream",
    [
        b":\n\n: keep-alive\n\ndata: %s\n\ndata: %s\n\ndata: [DONE]\n\n",
        b"data:%s\n\ndata:%s\n\ndata:[DONE]\n\n",
        b"data:  %s\n\ndata:  %s\n\ndata:  [DONE]\n\n",
        b"\xef\xbb\xbfevent: message\r\nid: 7\r\ndata: %s\r\n\r\ndata: %s\r\n\r\ndata: [DONE]",
    ],
)
def test_unusual_framing_is_no_trouble(serve, play, stream):
    token = (
        b'{"choices":\ndata: [{"text": "a"}]}'
        if b"event" not in stream
        else b'{"choices":[{"text":"a"}]}'
    )
    counts = b'{"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 1}}'

    async def script(call):
        await call.begin()
        await call.chunk(stream % (token, counts))
        await call.end()

    played = play(serve(script))
    assert outcome(played) == ("ok", "")
    assert len(played.sink.times["r0"]) == 1


def test_an_endless_line_is_cut_off(serve, play):
    async def script(call):
        await call.begin()
        for _ in range(40):
            await call.chunk(b"x" * 2**20)
        await call.end()

    status, reason = outcome(play(serve(script)))
    assert status == "failed"
    assert "longer than" in reason


@pytest.mark.parametrize("choices", [[], None])
def test_usage_without_choices_is_read(serve, play, choices):
    async def script(call):
        await call.stream(text("a"), text("b", "stop"), usage(4, choices), "[DONE]")

    end = play(serve(script)).sink.ends["r0"]
    assert (end.status, end.finish_reason, end.token_counts) == ("ok", "stop", [2, 2])


def test_an_end_without_a_reason_is_ok_and_its_reason_unknown(serve, play):
    async def script(call):
        await call.stream(*(text(piece) for piece in "abcd"), "[DONE]")

    end = play(serve(script)).sink.ends["r0"]
    assert (end.status, end.finish_reason, end.stats.counted_by) == ("ok", None, "events")


def test_a_true_zero_is_an_empty_answer(serve, play):
    async def script(call):
        await call.stream(text("", "stop"), usage(0), "[DONE]")

    assert outcome(play(serve(script))) == ("failed", "the answer was empty where tokens were due")


def test_thinking_until_the_limit_is_ok(serve, play):
    async def script(call):
        deltas = [{"reasoning_content": "hm"}, {"reasoning": "hm"}]
        await call.stream(
            *({"choices": [{"delta": delta}]} for delta in deltas),
            {"choices": [{"delta": {}, "finish_reason": "length"}]},
            "[DONE]",
        )

    end = play(serve(script), api="chat").sink.ends["r0"]
    assert (end.status, end.finish_reason) == ("ok", "length")


def test_an_answer_in_one_piece_is_taken(serve, play):
    async def script(call):
        choice = {"index": 0, "text": "ab", "finish_reason": "length"}
        await call.reply(200, {"choices": [choice], **{"usage": usage(2)["usage"]}})

    played = play(serve(script))
    assert outcome(played) == ("ok", "")
    assert played.sink.ids["r0"] == [-1, -1]


def test_a_prompt_that_is_too_long_is_rejected_and_the_rest_served(serve, play):
    async def too_long(call):
        message = "This model's maximum context length is 64 tokens, you asked for 65"
        await call.reply(400, {"error": {"message": message, "type": "BadRequestError"}})

    played = play(serve(only_first(too_long)), 2, max_concurrency=1)
    status, reason = outcome(played)
    assert status == "rejected"
    assert "64 tokens" in reason
    assert outcome(played, "r1")[0] == "ok"


def test_silence_between_tokens_ends_at_the_idle_limit(serve, play):
    async def silent(call):
        await call.begin()
        await call.event(text("a"))
        await asyncio.sleep(30)

    played = play(serve(only_first(silent)), 3, idle_timeout=0.4)
    assert outcome(played) == ("timeout", "no token for 0.4 s")
    assert {outcome(played, name)[0] for name in ("r1", "r2")} == {"ok"}
    assert played.duration_s < 1.5


def test_comments_are_no_tokens_to_the_idle_limit(serve, play):
    async def script(call):
        await call.begin()
        for _ in range(100):
            await call.chunk(b": still here\n\n")
            await asyncio.sleep(0.05)

    assert outcome(play(serve(script), idle_timeout=0.3))[0] == "timeout"


def test_a_slow_but_steady_stream_passes_the_idle_limit(serve, play):
    async def script(call):
        await call.begin()
        for piece in "abcdef":
            await asyncio.sleep(0.15)
            await call.event(text(piece))
        await call.event("[DONE]")
        await call.end()

    played = play(serve(script), idle_timeout=0.4)
    assert outcome(played) == ("ok", "")
    assert played.duration_s > 0.8


def test_what_outlasts_the_grace_is_cancelled_and_the_next_run_comes(serve, play, engine_for):
    async def never(call):
        await asyncio.sleep(30)

    server = serve(only_first(never))
    engine = engine_for(server.url, grace=0.3)
    played = play(server, 2, engine=engine)
    assert outcome(played) == ("cancelled", "unfinished after 0.3 s of grace")
    assert outcome(played, "r1")[0] == "ok"
    assert played.duration_s < 2
    assert outcome(play(server, 1, engine=engine))[0] == "ok"


def test_a_server_that_lets_the_body_hang_after_the_last_event_holds_nobody_up(serve, play):
    async def script(call):
        await call.begin()
        for event in (text("a"), text("b", "length"), usage(2), "[DONE]"):
            await call.event(event)
        await asyncio.sleep(30)

    played = play(serve(script), 2, max_concurrency=1)
    assert {end.status for end in played.sink.ends.values()} == {"ok"}
    assert played.duration_s < 2


def test_a_server_that_is_down_fails_each_request_with_the_reason(play):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound and not listening: refused
        played = play(f"http://127.0.0.1:{taken.getsockname()[1]}/v1", 5)
    assert {end.status for end in played.sink.ends.values()} == {"failed"}
    end = played.sink.ends["r0"]
    assert "Connect call failed" in end.reason
    assert end.stats.sent_s is None
    assert any("did not answer" in note for note in played.engine.describe().notes)


def test_an_address_that_can_be_no_hosts_fails_each_request_with_the_reason(play):
    played = play("http://a..b/v1", 2)
    assert {end.status for end in played.sink.ends.values()} == {"failed"}
    assert any("did not answer" in note for note in played.engine.describe().notes)


def test_a_server_whose_status_is_in_no_characters_can_be_looked_at(serve, play):
    server = serve(good)
    server.pages["/v1/models"] = drains_in_latin_1
    played = play(server)
    assert outcome(played) == ("ok", "")
    assert any("HTTP 503" in note for note in played.engine.describe().notes)


def test_a_broken_connection_is_tried_again_only_if_asked_and_then_reported(serve, play):
    played = play(serve(only_first(resets_at_once)))
    assert outcome(played)[0] == "failed"
    assert played.engine.observations()["client"]["connection_retries"] == 0
    played = play(serve(only_first(resets_at_once)), connection_retries=1)
    assert outcome(played)[0] == "ok"
    assert played.engine.observations()["client"]["connection_retries"] == 1


def test_a_stream_that_broke_is_never_tried_again(serve, play):
    server = serve(only_first(resets_in_the_stream))
    assert outcome(play(server, connection_retries=3))[0] == "failed"
    assert len(server.posts) == 1


def test_an_error_status_is_never_tried_again(serve, play):
    server = serve(only_first(is_overloaded))
    assert outcome(play(server, connection_retries=3))[0] == "failed"


def test_the_key_is_sent_and_shown_nowhere(serve, play, monkeypatch):
    monkeypatch.setenv("MY_KEY", "sk-very-secret")

    async def echo(call):
        message = f"wrong key {call.headers['authorization']}"
        await call.reply(401, {"error": {"message": message}})

    server = serve(echo)
    played = play(server, api_key_env="MY_KEY")
    assert server.posts[0].headers["authorization"] == "Bearer sk-very-secret"
    assert outcome(played) == ("failed", "HTTP 401: wrong key Bearer [key]")
    told = repr((played.engine.describe(), played.engine.observations(), played.sink.ends))
    assert "MY_KEY" in told
    assert "very-secret" not in told


@pytest.mark.parametrize("cut", range(4, 14))
def test_a_key_that_a_cut_goes_through_is_shown_in_no_part(serve, play, monkeypatch, cut):
    monkeypatch.setenv("MY_KEY", "sk-very-secret")

    async def rambles(call):
        message = "x" * (400 - cut) + call.headers["authorization"].removeprefix("Bearer ")
        await call.reply(401, {"error": {"message": message}})

    server = serve(rambles)
    server.models = b"y" * (80 - cut) + b"sk-very-secret and more"
    played = play(server, api_key_env="MY_KEY")
    (note,) = [note for note in played.engine.describe().notes if "lists no models" in note]
    assert "sk-v" not in note + outcome(played)[1]
    assert "yy[key]..." in note


@pytest.mark.parametrize("value", [None, "", "  ", "two\nlines", "käse"])
def test_a_key_that_is_none_is_a_mistake(engine_for, monkeypatch, value):
    monkeypatch.delenv("MY_KEY", raising=False)
    if value is not None:
        monkeypatch.setenv("MY_KEY", value)
    with pytest.raises(CbbenchError, match="MY_KEY holds no key"):
        engine_for("http://127.0.0.1:9/v1", api_key_env="MY_KEY")


def test_a_proxy_of_the_environment_is_not_asked_for_this_machine(serve, play, monkeypatch):
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    assert outcome(play(serve(good))) == ("ok", "")
