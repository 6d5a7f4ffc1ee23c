"""One request against a server that says exactly what the test wants, byte by byte."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator, Sequence

import pytest

from harness.locust_load import exchange
from harness.locust_load.connections import Connections
from harness.locust_load.exchange import RUN_ENDED, Answer, Exchange, not_connected

pytestmark = pytest.mark.loopback

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
STREAM = HEAD + b"Connection: close\r\n\r\n"
TOKEN = b'data: {"choices":[{"index":0,"text":"a","finish_reason":null}]}\n\n'
LAST = b'data: {"choices":[{"index":0,"text":"a","finish_reason":"length"}]}\n\n'
USAGE = b'data: {"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":%d}}\n\n'
DONE = b"data: [DONE]\n\n"
RESET = "reset"
CLOSE = "close"
HOLD = "hold"
HELD_S = 30.0
Step = bytes | float | str


class Scripted:
    """Reads one request a connection, then plays the steps: bytes, pauses, a reset, silence."""

    def __init__(self, steps: Sequence[Step]) -> None:
        self._steps = steps
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.accepted = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                peer, _ = self._listener.accept()
            except OSError:
                return
            self.accepted += 1
            with peer:
                while self._read_request(peer) and self._play(peer):
                    pass

    def _read_request(self, peer: socket.socket) -> bool:
        """Whether one came, whole: bytes that were left unread would reset the connection."""
        data = b""
        while not data.endswith(b"{}"):
            part = peer.recv(65536)
            if not part:
                return False
            data += part
        return True

    def _play(self, peer: socket.socket) -> bool:
        """Whether the connection is kept for another request."""
        for step in self._steps:
            if isinstance(step, bytes):
                try:
                    peer.sendall(step)
                except OSError:
                    return False
            elif step == RESET:
                peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                return False
            elif step == HOLD:
                self._over.wait(HELD_S)
                return False
            elif step == CLOSE:
                return False
            else:
                time.sleep(float(step))
        return STREAM not in self._steps

    def close(self) -> None:
        self._over.set()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(10)


@pytest.fixture
def script() -> Iterator[Callable[..., Scripted]]:
    made: list[Scripted] = []

    def start(*steps: Step) -> Scripted:
        made.append(Scripted(steps))
        return made[-1]

    yield start
    for server in made:
        server.close()


@pytest.fixture
def ask(script) -> Callable[..., Answer]:
    def run(*steps: Step, idle_s: float = 5.0, max_tokens: int | None = None) -> Answer:
        connections = Connections(f"http://127.0.0.1:{script(*steps).port}")
        connection = connections.take()
        try:
            asked = Exchange(connection, time.perf_counter, idle_s, max_tokens)
            return asked.run("/v1/completions", b"{}", {})
        finally:
            connections.give_back(connection)
            connections.close()

    return run


def chunked(*parts: bytes) -> bytes:
    return b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts)


def test_an_answer_has_the_servers_counts_and_the_clients_times(ask):
    answer = ask(STREAM, TOKEN, 0.1, TOKEN + LAST, USAGE % 3, DONE)
    assert (answer.status, answer.finish_reason, answer.reason) == ("ok", "length", "")
    assert (answer.counts, answer.counted_by, answer.prompt_tokens) == ((1, 1, 1), "usage", 7)
    first_s, second_s, third_s = answer.times_s
    assert answer.sent_s < first_s
    assert second_s - first_s > 0.09
    assert second_s == third_s <= answer.ended_s


def test_headers_comments_and_empty_deltas_are_no_tokens(ask):
    empty = b'data: {"choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}\n\n'
    answer = ask(STREAM, b":\n\n: keep-alive\n\n", empty, 0.15, LAST, DONE)
    assert answer.counts == (1,)
    assert answer.times_s[0] - answer.sent_s > 0.14


def test_tokens_that_come_together_are_counted_by_the_usage(ask):
    answer = ask(STREAM, TOKEN, TOKEN, LAST, USAGE % 9, DONE)
    assert (answer.counts, sum(answer.counts)) == ((3, 3, 3), 9)


def test_bytes_may_be_split_anywhere(ask):
    whole = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
    whole += chunked(TOKEN[:9], TOKEN[9:] + LAST[:3], LAST[3:] + USAGE % 2, DONE) + b"0\r\n\r\n"
    answer = ask(*(whole[i : i + 1] for i in range(len(whole))))
    assert (answer.status, answer.counts) == ("ok", (1, 1))


@pytest.mark.parametrize(
    ("steps", "status", "reason", "tokens"),
    [
        ([STREAM, TOKEN, RESET], "failed", "the connection broke after 1 tokens: ", 1),
        ([STREAM, TOKEN], "failed", "the stream was cut short", 1),
        (
            [HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + chunked(TOKEN) + b"40\r\ndata", CLOSE],
            "failed",
            "the connection broke after 1 tokens: ",
            1,
        ),
        (
            [HEAD + b"Content-Length: 999\r\n\r\n" + TOKEN, CLOSE],
            "failed",
            "the connection broke",
            1,
        ),
        ([RESET], "failed", "the connection broke after 0 tokens: ", 0),
        ([CLOSE], "failed", "the server closed the connection without an answer", 0),
        ([b"no HTTP\r\n\r\n", CLOSE], "failed", "the connection broke after 0 tokens: ", 0),
        (
            [STREAM, TOKEN, b'data: {"error":{"message":"no memory"}}\n\n', DONE],
            "failed",
            "no memory",
            1,
        ),
        ([STREAM, b"data: <html>\n\n"], "failed", "an event is not JSON: <html>", 0),
        ([STREAM, DONE], "failed", "the answer was empty where tokens were due", 0),
    ],
    ids=[
        *("reset", "cut short", "cut in a chunk", "short body", "reset at once", "no answer"),
        *("garbage", "error in the stream", "no json", "empty"),
    ],
)
def test_broken_answers_have_failed_with_what_had_come(ask, steps, status, reason, tokens):
    answer = ask(*steps)
    assert answer.status == status
    assert answer.reason.startswith(reason)
    assert sum(answer.counts) == tokens


@pytest.mark.parametrize(
    ("head", "body", "status", "reason"),
    [
        (b"429 Slow", b'{"error":{"message":"busy"}}', "failed", "overload, HTTP 429: busy"),
        (b"302 Found", b"", "failed", "HTTP 302: redirected elsewhere"),
        (b"500 No", b"<h1>no</h1>", "failed", "HTTP 500: <h1>no</h1>"),
        (
            b"400 Bad",
            b'{"error":{"message":"maximum context length is 64 tokens"}}',
            "rejected",
            "HTTP 400: maximum context length is 64 tokens",
        ),
    ],
)
def test_refusals_have_their_status(ask, head, body, status, reason):
    length = b"\r\nLocation: http://127.0.0.1:9/\r\nContent-Length: %d\r\n\r\n" % len(body)
    answer = ask(b"HTTP/1.1 " + head + length + body)
    assert (answer.status, answer.reason, answer.counts) == (status, reason, ())


def test_an_answer_in_one_piece_has_all_its_tokens_at_once(ask):
    body = b'{"choices":[{"text":"abc","finish_reason":"stop"}],"usage":{"completion_tokens":3}}'
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    answer = ask(head % len(body) + body)
    assert (answer.status, answer.finish_reason, answer.counts) == ("ok", "stop", (3,))
    assert len(answer.times_s) == 1


@pytest.mark.parametrize(
    ("steps", "reason"),
    [
        ([HOLD], "no first token within 0.2 s"),
        ([STREAM, HOLD], "no first token within 0.2 s"),
        ([STREAM, TOKEN, HOLD], "no next token within 0.2 s"),
        ([STREAM, TOKEN, *[b": still here\n\n", 0.05] * 120], "no next token within 0.2 s"),
    ],
)
def test_no_token_for_too_long_is_a_timeout(ask, steps, reason):
    answer = ask(*steps, idle_s=0.2)
    assert (answer.status, answer.reason) == ("timeout", reason)
    assert answer.ended_s - answer.sent_s > 0.19


def test_a_slow_and_steady_stream_is_no_timeout(ask):
    answer = ask(STREAM, *[TOKEN, 0.25] * 5, LAST, DONE, idle_s=1.0)
    assert (answer.status, sum(answer.counts)) == ("ok", 6)
    assert answer.ended_s - answer.sent_s > 1.2


def test_a_stream_that_stays_open_after_its_end_is_not_waited_for(ask):
    answer = ask(STREAM, LAST, DONE, HOLD, idle_s=60.0)
    assert answer.status == "ok"
    assert answer.ended_s - answer.times_s[0] < HELD_S / 2


@pytest.mark.parametrize(
    "endless",
    [[b"data: " + b"x" * 2**20] + [b"x" * 2**20] * 8, [TOKEN * 1000] * 3],
    ids=["a line", "tokens"],
)
def test_what_never_ends_is_cut_off(ask, endless):
    answer = ask(STREAM, *endless, HOLD, max_tokens=2)
    assert answer.status == "failed"
    assert "longer than" in answer.reason or "more than 1032 tokens" in answer.reason


def test_an_aborted_request_is_cancelled_with_what_had_come(script):
    connections = Connections(f"http://127.0.0.1:{script(STREAM, TOKEN, HOLD).port}")
    connection = connections.take()
    running = Exchange(connection, time.perf_counter, 30.0)
    answers: list[Answer] = []
    thread = threading.Thread(target=lambda: answers.append(running.run("/", b"{}", {})))
    thread.start()
    while not running.cancelled("").times_s:
        pass
    connection.abort()
    thread.join(10)
    assert (answers[0].status, answers[0].reason) == ("cancelled", RUN_ENDED)
    assert answers[0].counts == (1,)
    assert not connection.is_reusable
    connections.give_back(connection)


def test_a_server_that_is_not_there_is_a_failure_with_its_reason():
    with pytest.raises(OSError, match="refused") as error:
        Connections("http://127.0.0.1:1").take()
    answer = not_connected(error.value, 2.0)
    assert (answer.status, answer.sent_s, answer.ended_s) == ("failed", None, 2.0)
    assert answer.reason == "could not connect: Connection refused"


KEPT = HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + chunked(LAST, DONE) + b"0\r\n\r\n"


def test_a_connection_is_used_again_when_its_answer_was_whole(script):
    server = script(KEPT)
    connections = Connections(f"http://127.0.0.1:{server.port}")
    for _ in range(3):
        connection = connections.take()
        answer = Exchange(connection, time.perf_counter, 5.0).run("/", b"{}", {})
        connections.give_back(connection)
        assert answer.status == "ok"
    assert server.accepted == 1
    connections.close()


def test_a_prompt_has_the_time_of_its_first_token_to_be_sent(monkeypatch):
    """The answer before it has left a short timeout at the socket, and the server reads late."""
    monkeypatch.setattr(exchange, "_AFTER_DONE_S", 0.2)
    listener = socket.create_server(("127.0.0.1", 0))
    body = b"x" * 32 * 2**20  # more than the system takes in

    def read_late() -> None:
        peer, _ = listener.accept()
        with peer, peer.makefile("rb") as file:
            for length, pause_s in [(2, 0.0), (len(body), 0.6)]:
                while file.readline().strip():
                    pass
                time.sleep(pause_s)
                file.read(length)
                peer.sendall(KEPT)

    server = threading.Thread(target=read_late, daemon=True)
    server.start()
    connections = Connections(f"http://127.0.0.1:{listener.getsockname()[1]}")
    for content in (b"{}", body):
        connection = connections.take()
        answer = Exchange(connection, time.perf_counter, 20.0).run("/", content, {})
        connections.give_back(connection)
        assert (answer.status, answer.reason) == ("ok", "")
    connections.close()
    listener.close()
    server.join(10)


def test_a_body_that_nobody_reads_is_a_timeout():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        connections = Connections(f"http://127.0.0.1:{listener.getsockname()[1]}")
        connection = connections.take()
        answer = Exchange(connection, time.perf_counter, 0.3).run("/", b"x" * 32 * 2**20, {})
        connections.give_back(connection)
    assert (answer.status, answer.reason) == ("timeout", "no first token within 0.3 s")


def test_a_connection_that_the_server_has_closed_or_that_is_old_is_replaced(script):
    now_s = [0.0]
    server = script(KEPT)
    connections = Connections(f"http://127.0.0.1:{server.port}", lambda: now_s[0])
    first = connections.take()
    Exchange(first, time.perf_counter, 5.0).run("/", b"{}", {})
    connections.give_back(first)
    now_s[0] = 60.0
    second = connections.take()
    assert second is not first
    second.abort()
    connections.give_back(second)
    assert connections.num_idle == 0
    connections.close()
