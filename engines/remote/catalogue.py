"""The remote engines, described without loading what they talk with."""

from __future__ import annotations

from typing import Final

from engines.registry import EngineEntry, Setting
from engines.remote.options import address, json_object, variable_name
from engines.settings import (
    boolean,
    natural,
    one_of,
    optional_boolean,
    optional_positive_int,
    positive_float,
)

_CLIENT: Final = (
    Setting("model", str, None, "what requests call the model; auto: the first that it lists"),
    Setting("api", one_of("completions", "chat"), "completions", "which of the two endpoints"),
    Setting(
        "send_token_ids",
        optional_boolean,
        None,
        "prompts as token ids; false: as text; auto: ids on completions, text on chat",
    ),
    Setting("return_token_ids", boolean, False, "ask for the ids of the answer's tokens"),
    Setting(
        "extensions",
        boolean,
        True,
        "send fields that OpenAI lacks and others know (ignore_eos, usage in every chunk)",
    ),
    Setting(
        "extra_body",
        json_object,
        "{}",
        "more fields for each request, as JSON or @FILE; null takes a field out",
    ),
    Setting(
        "max_connections",
        optional_positive_int,
        None,
        "the most requests in flight; auto: 4096, or what open files allow",
    ),
    Setting("idle_timeout", positive_float, 120.0, "seconds without a token: timeout"),
    Setting("grace", positive_float, 300.0, "seconds for what is in flight after the last send"),
    Setting("connect_timeout", positive_float, 10.0, "seconds to connect"),
    Setting(
        "keepalive",
        positive_float,
        4.0,
        "seconds that an idle connection is kept; below the server's own, or requests break",
    ),
    Setting(
        "connection_retries",
        natural,
        0,
        "how often a request whose connection broke before any answer is sent again; reported",
    ),
    Setting("vocab_size", optional_positive_int, None, "drawn token ids stay below; auto: --model"),
    Setting(
        "max_model_len",
        optional_positive_int,
        None,
        "longest prompt plus answer; auto: what the server says, at most the run's",
    ),
    Setting(
        "tokenizer",
        str,
        None,
        "folder or id whose tokenizer makes texts of ids, and counts tokens where the server "
        "does not; auto: --model's makes texts and none counts",
    ),
)

OPENAI: Final = EngineEntry(
    name="openai",
    summary="any OpenAI-compatible server, over HTTP",
    settings=(
        Setting(
            "base_url", address, "http://127.0.0.1:8000/v1", "where it listens, with or without /v1"
        ),
        Setting(
            "api_key_env", variable_name, None, "the environment variable that holds the API key"
        ),
        *_CLIENT,
    ),
    builder="engines.remote.openai:build",
    preset={},
)
