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
    optional_byte_size,
    optional_positive_int,
    positive_float,
    positive_int,
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
    Setting(
        "client_processes",
        optional_positive_int,
        None,
        "processes that the schedule is split over; auto: the run's --client-processes",
    ),
    Setting(
        "certify",
        boolean,
        True,
        "before each load, see whether this client can send it, against a server without a model",
    ),
    Setting("scrape", boolean, True, "read the server's /metrics before, during and after"),
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

_MANAGED: Final = (
    Setting("port", optional_positive_int, None, "where it listens; auto: any that is free"),
    Setting("start_timeout", positive_float, 600.0, "seconds until /v1/models answers"),
    Setting("stop_timeout", positive_float, 15.0, "seconds to drain after SIGTERM, then SIGKILL"),
    Setting("api_key_env", variable_name, None, "the environment variable that holds the API key"),
)
_SERVES: Final = Setting(
    "serves",
    str,
    None,
    "the spec of an engine of the same run that this server runs, to be told what HTTP adds",
)
_LIBRARY: Final = (
    Setting("python", str, None, "the interpreter of the environment that it is installed in"),
    Setting("max_num_seqs", positive_int, 16, "the most requests resident at once"),
    Setting(
        "max_num_batched_tokens", optional_positive_int, None, "token budget; auto: its own default"
    ),
    Setting("prefix_caching", boolean, False, "keep what prompts have in common"),
    Setting("args", str, "", "more arguments of its command line"),
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
        _SERVES,
        *_CLIENT,
    ),
    builder="engines.remote.openai:build",
    preset={},
)
SERVER: Final = EngineEntry(
    name="server",
    summary="a server that the run starts by your command, measures over HTTP, and ends",
    settings=(
        Setting(
            "command",
            str,
            "",
            "its command line; {model}, {port}, {host} and {key} are filled in, no shell",
        ),
        *_MANAGED,
        _SERVES,
        *_CLIENT,
    ),
    builder="engines.remote.managed:build_server",
    preset={},
)
VLLM: Final = EngineEntry(
    name="vllm",
    summary="vLLM's server, started with the run's model, number format and memory",
    settings=(
        *_LIBRARY,
        Setting("kv_memory", optional_byte_size, None, "for keys and values; auto: --kv-memory"),
        *_MANAGED,
        *_CLIENT,
    ),
    builder="engines.remote.managed:build_vllm",
    preset={},
)
SGLANG: Final = EngineEntry(
    name="sglang",
    summary="SGLang's server, started with the run's model and number format",
    settings=(*_LIBRARY, *_MANAGED, *_CLIENT),
    builder="engines.remote.managed:build_sglang",
    preset={},
)
SERVED: Final = EngineEntry(
    name="served",
    summary="cbbench serve over one of these engines: the engine with HTTP before it",
    settings=(
        Setting("engine", str, "continuous", "the spec of the engine that is served"),
        Setting("max_waiting", positive_int, 4096, "requests that may wait in the server"),
        *_MANAGED,
        *_CLIENT,
    ),
    builder="engines.remote.managed:build_served",
    preset={},
)
