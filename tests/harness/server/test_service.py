"""Phases and health, without a process or a port."""

from __future__ import annotations

import asyncio
import random
from contextlib import ExitStack

import pytest

from engines.api import EngineInfo
from engines.clock import VirtualClock
from engines.models.text_data import text_data
from harness.server.bodies import CompletionBody
from harness.server.desk import Desk
from harness.server.errors import ApiError
from harness.server.mailbox import Mailbox
from harness.server.messages import Gone, NotBuilt, Ready
from harness.server.metrics import ServerMetrics
from harness.server.service import Limits, Service

INFO = EngineInfo("fake", {}, max_model_len=64, slots=2)


@pytest.fixture
def clock():
    return VirtualClock()


@pytest.fixture
def service(clock):
    metrics = ServerMetrics("tiny")
    desk = Desk(lambda submit, cancel: None, clock, metrics, lambda function: function())
    return Service("tiny", desk, metrics, Limits(), random.Random(1).getrandbits, lambda: None)


def status(check):
    try:
        check()
    except ApiError as error:
        return error.status_code
    return 200


def states(service):
    return service.phase, status(service.check_health), status(service.check_phase)


def test_phases_and_what_they_answer(service):
    assert states(service) == ("loading", 503, 503)
    service.receive(Ready(INFO, text_data("tiny")))
    assert states(service) == ("ready", 200, 200)
    service.drain()
    assert states(service) == ("draining", 200, 503)
    service.receive(Gone("ended early with exit code 3"))
    assert states(service) == ("gone", 503, 503)
    service.drain()
    assert service.phase == "gone"


def test_a_server_that_was_told_to_end_does_not_become_ready(service):
    service.drain()
    service.receive(Ready(INFO, text_data("tiny")))
    assert states(service) == ("draining", 200, 503)


def test_why_an_engine_was_not_built_is_kept(service):
    service.receive(NotBuilt("mistake", "no such model"))
    service.receive(Gone("ended early with exit code 1"))
    assert service.not_built.error == "no such model"


def test_an_engine_that_makes_no_step_is_not_healthy(service, clock):
    service.receive(Ready(INFO, text_data("tiny")))
    standing = service.check_phase()
    job = standing.reader.completion(CompletionBody(prompt="a"))
    service.desk.submit(job.requests, Mailbox(9), lambda: None)
    clock.advance(299)
    assert status(service.check_health) == 200
    clock.advance(2)
    assert status(service.check_health) == 503


def test_an_engine_that_makes_no_step_is_not_waited_for_at_the_end(service, clock):
    service.receive(Ready(INFO, text_data("tiny")))
    job = service.check_phase().reader.completion(CompletionBody(prompt="a"))
    mailbox = Mailbox(9)
    service.desk.submit(job.requests, mailbox, lambda: None)
    service.drain()
    clock.advance(299)
    assert not service.is_drained()
    assert service.how_it_ended == ""
    clock.advance(2)
    assert service.is_drained()
    assert service.how_it_ended == "has made no step for 301 s"
    finish = asyncio.run(mailbox.take())[0].finish
    assert (finish.status, "has made no step" in finish.reason) == ("failed", True)


def test_prompts_that_are_being_read_take_places_too(service):
    service.receive(Ready(INFO, text_data("tiny")))
    most = INFO.slots + service.limits.most_waiting
    with ExitStack() as reading:
        for _ in range(most):
            reading.enter_context(service.reading())
        with pytest.raises(ApiError) as caught, service.reading():
            pass
        assert caught.value.status_code == 429
    with service.reading():
        pass
