"""One answer over one connection that a test plays."""

from __future__ import annotations

import asyncio
import json

import pytest

from engines.api import Finish, Request, StepEvents
from engines.clock import WallClock
from engines.models.text_data import text_data
from harness.server.answering import Answering, Patience
from harness.server.desk import Desk
from harness.server.jobs import Job
from harness.server.metrics import ServerMetrics
from harness.server.shapes import Shape
from harness.server.text import ModelText

TEXT = ModelText(text_data("tiny"))


class Transport:
    def __init__(self):
        self.aborted = False

    def is_closing(self):
        return self.aborted

    def get_extra_info(self, name):
        return None

    def abort(self):
        self.aborted = True


class Line:
    """A connection: what is written to it is kept, unless it is `stuck`."""

    def __init__(self, stuck=False):
        self.sent = []
        self.stuck = stuck
        self.transport = Transport()
        self.scope = {"type": "http", "state": {"cbbench.transport": self.transport}}

    async def receive(self):
        await asyncio.Event().wait()

    async def send(self, message):
        if self.stuck:
            await asyncio.Event().wait()
        self.sent.append(message)


class Stage:
    """A desk whose engine is the test, and one answer to a prompt."""

    def __init__(self, line, **fields):
        self.cancelled = []
        self.metrics = ServerMetrics("tiny")
        loop = asyncio.get_running_loop()
        self.desk = Desk(
            lambda submit, cancel: self.cancelled.extend(cancel),
            WallClock(),
            self.metrics,
            loop.call_soon,
        )
        values = {"stops": (), "min_tokens": 0, "streams": True} | fields
        job = Job(
            endpoint="completions",
            answer_id="x",
            requests=(Request("x-0", (5,), 9),),
            skip_special_tokens=True,
            return_token_ids=False,
            include_usage=False,
            continuous_usage=False,
            **values,
        )
        answering = Answering(
            job, Shape("completions", "x", 0, "tiny"), self.desk, TEXT, Patience(10, 0.05)
        )
        self.task = asyncio.create_task(answering(line.scope, line.receive, line.send))

    async def give(self, *token_ids, finish=None):
        """A step of the engine, and time for its tokens to be written."""
        tokens = ([["x-0"], [list(token_ids)]]) if token_ids else [[], []]
        self.desk.dispatch(StepEvents(0.0, *tokens, [finish] if finish else []))
        for _ in range(10):
            await asyncio.sleep(0)


def run(scene):
    return asyncio.run(asyncio.wait_for(scene(), 30))


def test_nothing_is_sent_before_the_first_token():
    async def scene():
        line = Line()
        stage = Stage(line)
        await asyncio.sleep(0)
        assert line.sent == []
        await stage.give(500)
        assert line.sent[0]["status"] == 200
        await stage.give(500, finish=Finish("x-0", "ok", "length"))
        await stage.task
        assert line.sent[-1]["body"].endswith(b"data: [DONE]\n\n")
        assert not line.sent[-1]["more_body"]

    run(scene)


@pytest.mark.parametrize(("status", "code"), [("failed", 500), ("rejected", 400)])
def test_an_end_without_a_token_is_an_http_error(status, code):
    async def scene():
        line = Line()
        stage = Stage(line)
        await asyncio.sleep(0)
        await stage.give(finish=Finish("x-0", status, reason="because"))
        await stage.task
        assert line.sent[0]["status"] == code
        assert json.loads(line.sent[1]["body"])["error"]["message"] == "because"

    run(scene)


def test_a_write_that_takes_too_long_cuts_the_connection_off():
    async def scene():
        line = Line(stuck=True)
        stage = Stage(line)
        await asyncio.sleep(0)
        await stage.give(500)
        await stage.task
        await asyncio.sleep(0)
        assert line.transport.aborted
        assert stage.cancelled == ["x-0"]
        assert stage.desk.in_flight == 0

    run(scene)


def test_too_much_for_a_stuck_reader_cuts_the_connection_off_at_once():
    async def scene():
        line = Line(stuck=True)
        stage = Stage(line)
        await asyncio.sleep(0)
        await stage.give(500)
        await stage.give(*[500] * 10)
        assert not line.transport.aborted
        await stage.give(500)
        assert line.transport.aborted
        stage.task.cancel()
        await asyncio.wait([stage.task])
        assert stage.desk.in_flight == 0

    run(scene)


def test_a_reader_that_is_only_not_asked_is_not_cut_off():
    async def scene():
        line = Line()
        stage = Stage(line)
        await asyncio.sleep(0)
        for _ in range(5):  # no turn of the event loop between these
            stage.desk.dispatch(StepEvents(0.0, ["x-0"], [[500] * 10]))
        await stage.give(500, finish=Finish("x-0", "ok", "length"))
        await stage.task
        assert not line.transport.aborted
        assert line.sent[-1]["body"].endswith(b"data: [DONE]\n\n")

    run(scene)


def test_a_stop_string_ends_the_request_before_the_engine_does():
    async def scene():
        line = Line()
        ids = TEXT.encode("one STOP two")
        stage = Stage(line, stops=("STOP",), streams=False)
        await asyncio.sleep(0)
        for token_id in ids:
            await stage.give(token_id)
        await stage.task
        choice = json.loads(line.sent[-1]["body"])["choices"][0]
        assert (choice["text"], choice["finish_reason"]) == ("one ", "stop")
        assert b'{finished_reason="stop",model_name="tiny"} 1.0' in stage.metrics.exposition()
        assert stage.cancelled == ["x-0"]

    run(scene)
