"""Errors in OpenAI's shape, and what is said before any stream begins."""

from __future__ import annotations

import json

import httpx
import pytest

pytestmark = pytest.mark.loopback

FAILS = 3997


def refused(response, status, param=None, code=None):
    """Checks status and shape; returns the message."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/json"
    error = response.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["param"] == param
    if code is not None:
        assert error["code"] == code
    return error["message"]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("max_tokens", 0),
        ("max_tokens", -1),
        ("max_tokens", 1.5),
        ("max_tokens", "9"),
        ("max_completion_tokens", 0),
        ("min_tokens", -1),
        ("min_tokens", 6),
        ("temperature", -0.1),
        ("temperature", 2.1),
        ("top_p", 0),
        ("top_p", 1.1),
        ("top_k", -2),
        ("seed", 2**63),
        ("stop", ""),
        ("stop", ["a", ""]),
        ("stop", [1]),
        ("stop", ["x"] * 17),
        ("n", 2),
        ("best_of", 2),
        ("logprobs", 1),
        ("echo", True),
        ("suffix", "x"),
        ("presence_penalty", 0.5),
        ("frequency_penalty", 0.5),
        ("logit_bias", {"5": 1}),
        ("response_format", {"type": "json_object"}),
        ("stream", "yes"),
        ("priority", 1.5),
        ("user", 7),
        ("no_such_field", 1),
    ],
)
def test_a_bad_field_is_named(echo, field, value):
    message = refused(echo.post(prompt="a", **{"max_tokens": 5} | {field: value}), 400, field)
    assert field in message


@pytest.mark.parametrize(
    "fields",
    [
        {"n": 1, "best_of": 1, "echo": False, "logprobs": None, "suffix": None},
        {"presence_penalty": 0, "frequency_penalty": 0.0, "logit_bias": {}, "user": "me"},
        {"repetition_penalty": 1.0, "min_p": 0, "response_format": {"type": "text"}},
        {"temperature": 0, "top_p": 1, "top_k": -1, "seed": -5, "stop": None, "stream": False},
        {"priority": 10**9, "model": "tiny", "stop": []},
    ],
)
def test_fields_that_change_nothing_are_taken(echo, fields):
    assert echo.post(prompt="a", max_tokens=1, **fields).status_code == 200


@pytest.mark.parametrize(
    "prompt", [[], "", [[]], [[1], []], ["a", 1], [-1], [1.5], None, {}, [True], "\ud800"]
)
def test_a_prompt_that_is_none_is_refused(echo, prompt):
    body = '{"max_tokens": 2, "prompt": %s}'
    response = httpx.post(
        f"{echo.url}/v1/completions",
        content=body % json.dumps(prompt),
        headers={"content-type": "application/json"},
        trust_env=False,
    )
    refused(response, 400, "prompt")


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("prompt", "limit"), [(513, 1), (500, 13), (512, 1), (512, None), (600, None)]
)
def test_too_long_is_refused_before_any_stream(echo, prompt, limit, stream):
    response = echo.post(prompt=[500] * prompt, max_tokens=limit, stream=stream)
    message = refused(response, 400, "prompt", "context_length_exceeded")
    assert str(prompt) in message
    assert "512" in message


def test_what_just_fits_is_served(echo):
    answer = echo.post(prompt=[500] * 500, max_tokens=12).json()
    assert answer["usage"]["total_tokens"] == 512


def test_token_ids_beyond_the_vocabulary_are_refused(echo):
    assert "4096" in refused(echo.post(prompt=[4096], max_tokens=1), 400, "prompt")


def test_stream_options_without_a_stream_are_refused(echo):
    response = echo.post(prompt="a", max_tokens=1, stream_options={"include_usage": True})
    refused(response, 400, "stream_options")


@pytest.mark.parametrize(
    "messages",
    [
        [],
        [{"role": "nobody", "content": "x"}],
        [{"role": "user"}],
        [{"role": "user", "content": [{"type": "image_url", "image_url": "x"}]}],
    ],
)
def test_messages_that_cannot_be_served_are_refused(echo, messages):
    response = echo.post("chat/completions", messages=messages, max_tokens=1)
    assert response.status_code == 400
    assert response.json()["error"]["param"].startswith("messages")


@pytest.mark.parametrize(
    "content", [b"{", b"", b"[1]", b'{"prompt": NaN}', b"[" * 100_000, b"\xff"]
)
def test_a_body_that_is_no_object_is_refused(echo, content):
    response = httpx.post(
        f"{echo.url}/v1/completions",
        content=content,
        headers={"content-type": "application/json"},
        trust_env=False,
    )
    assert response.status_code == 400
    assert response.json()["error"]["type"] == "invalid_request_error"


def test_an_unknown_model_is_a_404_that_names_the_known_one(echo):
    message = refused(echo.post(prompt="a", model="gpt"), 404, "model", "model_not_found")
    assert "'tiny'" in message
    assert echo.get("/v1/models/gpt").status_code == 404


def test_an_unknown_path_and_method_have_the_shape_too(echo):
    refused(echo.get("/v1/nothing"), 404)
    refused(echo.get("/v1/completions"), 405)


def test_a_failure_before_and_within_a_stream_is_an_error(slow_echo):
    refused(slow_echo.post(prompt=[FAILS], max_tokens=5), 500)
    events = slow_echo.events(prompt=[FAILS, 500], max_tokens=5)
    assert slow_echo.text_of(events[:-1])
    assert events[-1]["error"]["message"] == "as was asked for"
    assert "[DONE]" not in events


def test_the_model_list_names_the_model_and_its_context(echo):
    (model,) = echo.get("/v1/models").json()["data"]
    assert (model["id"], model["object"], model["max_model_len"]) == ("tiny", "model", 512)
    assert echo.get("/v1/models/tiny").json() == model
