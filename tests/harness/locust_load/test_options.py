"""Options from text: read, or refused in a sentence that names the option."""

from __future__ import annotations

import math

import pytest

from engines.api import CbbenchError
from harness.locust_load.options import ARGUMENTS, read_host, read_load_options


def read(host: str = "http://127.0.0.1:8000", users: int | None = 3, **given: object):
    defaults = {argument.name: argument.default for argument in ARGUMENTS}
    assert given.keys() <= defaults.keys()
    return read_load_options(defaults | given, host, users)


def test_what_is_left_out_has_its_default_and_an_empty_field_counts_as_left_out():
    options = read(request_rate="", num_prompts="", seed="")
    assert (options.request_rate, options.num_prompts, options.seed) == (None, None, 0)
    assert (options.workload, options.model, options.tokenizer) == ("chat-mix", "tiny", None)
    assert (options.prompt_form, options.path) == (None, "/v1/completions")
    assert (options.idle_timeout_s, options.min_attainment) == (120.0, 0.95)
    assert options.ignore_eos
    assert read(users=None).users == 1


def test_values_are_read():
    options = read(
        request_rate="inf", api="chat", prompt_form="text", idle_timeout="2m", no_ignore_eos=True
    )
    assert options.request_rate == math.inf
    assert (options.path, options.prompt_form) == ("/v1/chat/completions", "text")
    assert (options.idle_timeout_s, options.ignore_eos) == (120.0, False)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("request_rate", "-1"),
        ("request_rate", "nan"),
        ("num_prompts", "0"),
        ("seed", "x"),
        ("api", "embeddings"),
        ("min_attainment", "95"),
        ("max_fail_ratio", "nan"),
        ("idle_timeout", "0"),
        ("range_ratio", "1"),
    ],
)
def test_bad_values_name_their_option(name, value):
    flag = f"--{name.replace('_', '-')}"
    with pytest.raises(CbbenchError, match=rf"^{flag} is '{value}'; expected "):
        read(**{name: value})


def test_a_key_in_place_of_a_variables_name_is_refused_and_not_repeated():
    with pytest.raises(CbbenchError, match="the name of an environment variable") as refused:
        read(api_key_env="sk-secret")
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    ("given", "base"),
    [
        ("http://127.0.0.1:8000/", "http://127.0.0.1:8000"),
        ("http://127.0.0.1:8000/v1", "http://127.0.0.1:8000"),
        ("https://example.org/llm/v1/", "https://example.org/llm"),
    ],
)
def test_a_host_may_end_in_v1_or_a_slash(given, base):
    assert read_host(given) == base


@pytest.mark.parametrize("given", [None, "", "127.0.0.1:8000", "ftp://x", "http://", "http://x?a"])
def test_a_host_that_is_none_is_refused(given):
    with pytest.raises(CbbenchError, match=r"expected .*http"):
        read_host(given)


def test_a_password_in_the_host_is_refused_and_not_repeated():
    with pytest.raises(CbbenchError, match="an address without a user") as refused:
        read_host("http://me:secret@127.0.0.1:8000")
    assert "secret" not in str(refused.value)


def test_no_users_make_no_load():
    with pytest.raises(CbbenchError, match="--users is 0"):
        read(users=0)


def test_the_identity_tells_different_runs_apart_and_ignores_the_folder():
    assert read(seed="1").identity() != read(seed="2").identity()
    assert read(out="a").identity() == read(out="b").identity()


def test_the_engine_openai_takes_the_same():
    options = read(
        no_extensions=True, extra_body='{"top_k": 1}', api="chat", vocab_size="99", tokenizer="x"
    )
    remote = options.remote("text")
    assert (remote.root, remote.model, remote.path) == (
        "http://127.0.0.1:8000",
        "tiny",
        "/v1/chat/completions",
    )
    assert (remote.extensions, remote.sends_ids, remote.extra_body) == (False, False, {"top_k": 1})
    assert read().remote("ids").sends_ids
