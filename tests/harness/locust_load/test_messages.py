"""What one process says arrives at the other as it was, through plain values only."""

from __future__ import annotations

import json

import pytest

from harness.locust_load.exchange import Answer
from harness.locust_load.messages import (
    TO_MASTER,
    TO_WORKER,
    Ack,
    Begin,
    Begun,
    End,
    Ping,
    Pong,
    Prepare,
    Prepared,
    Report,
    from_wire,
    name_of,
    to_wire,
)
from harness.locust_load.player import News, Row

ANSWER = Answer(0.1, 2.0, "ok", "length", "", (1.0, 2.0), (1, 3), "usage", 8, None)
MESSAGES = [
    Prepare("r", 1, 3, 4096, 128, [0, 1], "ids"),
    Prepared("r", "abc", 2),
    Ping("r", 1.5),
    Pong("r", 1.5, 7.0),
    Begin("r", 3.25),
    Begun("r"),
    Report("r", 4, News(((3, 0.5),), (Row(3, 0.5, 0.0, ANSWER),)), 2, 0.01, True),
    Ack("r", 4),
    End("r", 5.0),
]


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_a_message_survives_the_way(message):
    plain = json.loads(json.dumps(to_wire(message)))
    assert from_wire(type(message), plain) == message


def test_every_kind_has_a_name_of_its_own():
    kinds = [*TO_WORKER, *TO_MASTER]
    assert {type(message) for message in MESSAGES} == set(kinds)
    assert len({name_of(kind) for kind in kinds}) == len(kinds)
