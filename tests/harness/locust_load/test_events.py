"""What locust is told of a request: times to tokens, from the schedule, and never to headers."""

from __future__ import annotations

import pytest

from engines.api import Request
from harness.locust_load.events import PARTS, context_of, events_of
from harness.locust_load.exchange import Answer
from harness.locust_load.player import Row

REQUEST = Request("00007", (1, 2, 3), 5, request_class="chat")
PATH = "/v1/completions"


def told(answer: Answer, scheduled_s: float = 1.0) -> dict[str, float]:
    found = events_of(REQUEST, Row(7, scheduled_s, 0.0, answer), PATH)
    return {event.kind: event.response_ms for event in found}


def test_times_count_from_the_schedule_to_the_tokens():
    answer = Answer(1.25, 3.0, "ok", "length", "", (1.5, 2.0, 2.5), (1, 1, 3))
    assert told(answer) == pytest.approx(
        {"E2E": 1500.0, "TTFT": 500.0, "TPOT": 250.0, "LAG": 250.0, "TOKENS": 5}
    )


def test_one_token_has_no_tpot():
    assert "TPOT" not in told(Answer(1.0, 2.0, "ok", "stop", "", (1.5,), (1,)))


def test_events_that_the_usage_left_without_a_token_are_no_tokens():
    answer = Answer(1.0, 3.0, "ok", "stop", "", (1.5, 2.0, 2.5), (1, 0, 1))
    assert told(answer)["TPOT"] == pytest.approx(1000.0)


def test_a_failure_is_one_event_with_its_reason_and_no_part_of_it():
    answer = Answer(1.0, 3.5, "timeout", None, "no next token within 1 s", (1.5,), (1,))
    (event,) = events_of(REQUEST, Row(7, 1.0, 0.0, answer), PATH)
    assert (event.kind, event.name, event.response_ms) == ("E2E", PATH, 2500.0)
    assert str(event.error) == "timeout: no next token within 1 s"


def test_what_the_end_cut_off_is_not_told():
    assert told(Answer(1.0, 3.5, "cancelled", None, "the run ended", (1.5,), (1,))) == {}


def test_every_kind_but_the_whole_request_is_a_part_of_it():
    answer = Answer(1.25, 3.0, "ok", "length", "", (1.5, 2.0), (1, 1))
    assert set(told(answer)) - set(PARTS) == {"E2E"}


def test_listeners_hear_which_request_it_was():
    answer = Answer(1.25, 3.0, "ok", "length", "", (1.5, 2.0), (1, 3))
    assert context_of(REQUEST, Row(7, 1.0, 0.0, answer)) == {
        "request_id": "00007",
        "request_class": "chat",
        "prompt_tokens": 3,
        "output_tokens": 4,
    }
