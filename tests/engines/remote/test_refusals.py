"""A prompt that can never fit is rejected; every other refusal is a failure with its reason."""

from __future__ import annotations

import json

import pytest

from engines.remote.refusals import refusal


def openai_error(message, **more) -> bytes:
    return json.dumps({"error": {"message": message, **more}}).encode()


@pytest.mark.parametrize(
    "body",
    [
        openai_error(
            "This model's maximum context length is 64 tokens. However, you asked for 65."
        ),
        openai_error("prompt 65 + max_tokens 1 = 66 tokens exceed the context of 64"),
        openai_error("'max_tokens' is too large: 200. This model supports at most 64."),
        openai_error("nothing said", code="context_length_exceeded"),
        openai_error(
            "The input (65 tokens) is longer than the model's context length (64 tokens)."
        ),
        openai_error("The prompt is too long: 65 tokens"),
        openai_error("exceeds the available context size", type="exceed_context_size_error"),
        b'{"error":"`inputs` tokens + `max_new_tokens` must be <= 64. Given: 65","error_type":"v"}',
        b'{"object":"error","message":"Prompt exceeds max_model_len"}',
    ],
)
def test_a_refusal_for_length_is_a_rejection(body):
    for http_status in (400, 422):
        assert refusal(http_status, body)[0] == "rejected"
    assert refusal(500, body)[0] == "failed"


@pytest.mark.parametrize(
    "body",
    [
        openai_error("temperature must be non-negative"),
        openai_error("unknown field 'ignore_eos'"),
        openai_error("The model `gpt` does not exist"),
        openai_error("prompt: expected a string"),
        b'{"detail":[{"loc":["body","stop"],"msg":"wrong"}]}',
        b"",
        b"<html>Bad Request</html>",
        b"\xff\xfe",
        b"[1, 2]",
    ],
)
def test_any_other_bad_request_is_a_failure(body):
    assert refusal(400, body)[0] == "failed"


@pytest.mark.parametrize("http_status", [429, 503])
def test_an_overloaded_server_has_failed_the_request(http_status):
    status, reason = refusal(http_status, openai_error("the queue is full"))
    assert status == "failed"
    assert reason == f"overload, HTTP {http_status}: the queue is full"


def test_the_reason_is_one_short_line():
    reason = refusal(500, b"Traceback\n" + b"x y\n" * 1000)[1]
    assert "\n" not in reason
    assert len(reason) < 500


def test_the_code_stands_beside_the_message():
    assert refusal(404, openai_error("no such model", code="model_not_found"))[1] == (
        "HTTP 404: no such model (model_not_found)"
    )
