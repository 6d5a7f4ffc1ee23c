"""OpenAI's own client against the server, unmodified."""

from __future__ import annotations

import openai
import pytest

pytestmark = pytest.mark.loopback

TEXT = "Zürich 🔥 na ďalej"


@pytest.fixture(scope="module")
def client(echo):
    with openai.OpenAI(base_url=f"{echo.url}/v1", api_key="none", max_retries=0) as client:
        yield client


def test_models(client):
    assert [model.id for model in client.models.list()] == ["tiny"]
    assert client.models.retrieve("tiny").owned_by == "cbbench"


def test_a_completion(client):
    answer = client.completions.create(model="tiny", prompt=TEXT, max_tokens=15)
    assert answer.choices[0].text.startswith("Zürich 🔥")
    assert answer.usage.completion_tokens == 15


def test_a_streamed_chat_is_the_whole_one(client):
    ask = {"model": "tiny", "messages": [{"role": "user", "content": TEXT}], "seed": 1}
    whole = client.chat.completions.create(**ask, max_completion_tokens=30)
    chunks = list(
        client.chat.completions.create(
            **ask, max_completion_tokens=30, stream=True, stream_options={"include_usage": True}
        )
    )
    joined = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert joined == whole.choices[0].message.content
    assert chunks[-1].choices == []
    assert chunks[-1].usage == whole.usage


def test_extra_fields(client):
    answer = client.completions.create(
        model="tiny",
        prompt=[500, 2, 600],
        max_tokens=6,
        stop=["x"],
        extra_body={"ignore_eos": True, "top_k": 5, "min_tokens": 2},
    )
    assert answer.choices[0].finish_reason == "length"


def test_errors_are_the_clients_own(client):
    with pytest.raises(openai.BadRequestError, match="max_tokens") as caught:
        client.completions.create(model="tiny", prompt="a", max_tokens=0)
    assert caught.value.param == "max_tokens"
    with pytest.raises(openai.NotFoundError):
        client.completions.create(model="gpt", prompt="a")
    with pytest.raises(openai.BadRequestError, match="context"):
        client.completions.create(model="tiny", prompt=[5] * 513, max_tokens=1, stream=True)


def test_an_error_within_a_stream_is_raised(slow_echo):
    with openai.OpenAI(base_url=f"{slow_echo.url}/v1", api_key="x", max_retries=0) as client:
        stream = client.completions.create(
            model="tiny", prompt=[3997, 500], max_tokens=9, stream=True
        )
        with pytest.raises(openai.APIError, match="as was asked for"):
            list(stream)
