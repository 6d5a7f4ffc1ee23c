"""The options that the locustfile adds to locust's own, read from text or refused in a sentence.

Knows no parser: the locustfile hands the table below to locust's and brings back what was given.
`--host`, `--users`, `--run-time`, `--spawn-rate` and `--stop-timeout` are locust's.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Literal, TypeVar, cast

from engines.api import CbbenchError
from engines.remote.options import RemoteOptions, address, json_object, root_of, variable_name
from engines.settings import natural, one_of, positive_int
from harness.run.config import fraction, positive, rate, seconds

Api = Literal["completions", "chat"]
PromptForm = Literal["ids", "text"]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Argument:
    """One option. `default` is text, or `False` for a switch; `None`: nothing unless given."""

    flag: str
    metavar: str
    default: str | bool | None
    help: str
    in_web_ui: bool = True

    @property
    def name(self) -> str:
        return self.flag.removeprefix("--").replace("-", "_")


ARGUMENTS: Final = (
    Argument("--workload", "NAME|trace:PATH|jsonl:PATH", "chat-mix", "What arrives, as in cbbench"),
    Argument("--seed", "N", "0", "Of the workload: the same seed gives the same requests"),
    Argument("--num-prompts", "N", None, "Requests of the run; default: the workload's"),
    Argument(
        "--request-rate",
        "RATE|inf",
        None,
        "Requests a second on the workload's schedule, all workers together; without it, and "
        "with inf, each user sends its next request when its last has ended",
    ),
    Argument("--burstiness", "K|inf", None, "Shape of the gaps: 1 is Poisson, inf is constant"),
    Argument("--input-len", "N", None, "Tokens of every prompt, for the workload's"),
    Argument("--output-len", "N", None, "Tokens of every answer, for the workload's"),
    Argument("--range-ratio", "R", "0", "Spread of the two lengths, 0 <= R < 1"),
    Argument("--trace-format", "FORMAT", "azure", "The columns of trace:PATH"),
    Argument("--trace-scale", "X", "1", "Stretches a trace's times: 2 takes twice as long"),
    Argument("--api", "completions|chat", "completions", "The endpoint that is called"),
    Argument("--model", "NAME", "tiny", "The model's name at the server, and its tokenizer here"),
    Argument("--tokenizer", "ID|PATH", None, "A tokenizer for the model, if --model is not one"),
    Argument(
        "--prompt-form",
        "auto|ids|text",
        "auto",
        "How prompts are sent; auto: token ids where the server takes them, else text",
    ),
    Argument("--no-extensions", "", False, "Send no fields but OpenAI's own (no ignore_eos)"),
    Argument(
        "--extra-body", "JSON|@FILE", None, "More fields for each request; null takes one out"
    ),
    Argument("--vocab-size", "N", None, "Token ids to draw prompts from; default: the model's"),
    Argument("--max-model-len", "N", None, "Longest prompt plus answer; default: the server's"),
    Argument(
        "--skip-chat-template", "", False, "jsonl: prompts as they are, not as a user's message"
    ),
    Argument("--no-ignore-eos", "", False, "Answers end where the model ends them"),
    Argument("--num-warmups", "N", "2", "Requests before the run, not counted, over all workers"),
    Argument("--idle-timeout", "TIME", "120s", "Longest wait for the next token of an answer"),
    Argument("--goodput", "NAME:MS,...", None, "Objectives, as in ttft:500,tpot:50"),
    Argument(
        "--min-attainment", "SHARE", "0.95", "Requests that must meet --goodput, or exit with 1"
    ),
    Argument("--max-fail-ratio", "SHARE", "0.01", "Requests that may fail before exiting with 1"),
    Argument("--strict", "", False, "Exit with 3 when the result is SUSPECT"),
    Argument(
        "--api-key-env",
        "VARIABLE",
        None,
        "The environment variable that holds the API key, on every machine",
        in_web_ui=False,
    ),
    Argument("--label", "NAME", "openai", "What the server is called in the report"),
    Argument("--out", "DIR", None, "A new or empty folder; default: results/<id>", False),
)


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """What is asked for. `host` has no trailing slash and no credentials."""

    host: str
    users: int
    workload: str
    seed: int
    num_prompts: int | None
    request_rate: float | None
    burstiness: float | None
    input_len: int | None
    output_len: int | None
    range_ratio: float
    trace_format: str
    trace_scale: float
    api: Api
    model: str
    tokenizer: str | None
    prompt_form: PromptForm | None
    extensions: bool
    extra_body: str
    vocab_size: int | None
    max_model_len: int | None
    chat_template: bool
    ignore_eos: bool
    num_warmups: int
    idle_timeout_s: float
    goodput: str | None
    min_attainment: float
    max_fail_ratio: float
    strict: bool
    api_key_env: str | None
    label: str
    out: Path | None

    @property
    def path(self) -> str:
        return self.remote("ids").path

    def remote(self, form: PromptForm) -> RemoteOptions:
        """The same as the engine `openai` takes it."""
        return RemoteOptions(
            root=self.host,
            model=self.model,
            api=self.api,
            api_key_env=self.api_key_env,
            send_token_ids=form == "ids",
            extensions=self.extensions,
            extra_body=json.loads(self.extra_body),
            idle_timeout=self.idle_timeout_s,
            vocab_size=self.vocab_size,
            max_model_len=self.max_model_len,
            tokenizer=self.tokenizer,
        )

    def identity(self) -> str:
        """Everything that was asked for, as one text: what a run's short hash is made of."""
        return repr({**asdict(self), "out": None})


def read_load_options(given: Mapping[str, Any], host: str | None, users: int | None) -> LoadOptions:
    """`given`: a value for each name of `ARGUMENTS`; an empty text counts as left out.

    Raises `CbbenchError` naming the option, what was given and what is expected.
    """
    reader = _Reader({name: None if value == "" else value for name, value in given.items()})
    return LoadOptions(
        host=read_host(host),
        users=_read_users(users),
        workload=reader.needed("--workload", str),
        seed=reader.needed("--seed", natural),
        num_prompts=reader.optional("--num-prompts", positive_int),
        request_rate=reader.optional("--request-rate", rate),
        burstiness=reader.optional("--burstiness", rate),
        input_len=reader.optional("--input-len", positive_int),
        output_len=reader.optional("--output-len", positive_int),
        range_ratio=reader.needed("--range-ratio", fraction),
        trace_format=reader.needed("--trace-format", str),
        trace_scale=reader.needed("--trace-scale", positive),
        api=cast(Api, reader.needed("--api", one_of("completions", "chat"))),
        model=reader.needed("--model", str),
        tokenizer=reader.optional("--tokenizer", str),
        prompt_form=_prompt_form(reader),
        extensions=not reader.switch("--no-extensions"),
        extra_body=reader.optional("--extra-body", json_object) or "{}",
        vocab_size=reader.optional("--vocab-size", positive_int),
        max_model_len=reader.optional("--max-model-len", positive_int),
        chat_template=not reader.switch("--skip-chat-template"),
        ignore_eos=not reader.switch("--no-ignore-eos"),
        num_warmups=reader.needed("--num-warmups", natural),
        idle_timeout_s=reader.needed("--idle-timeout", seconds),
        goodput=reader.optional("--goodput", str),
        min_attainment=reader.needed("--min-attainment", share),
        max_fail_ratio=reader.needed("--max-fail-ratio", share),
        strict=reader.switch("--strict"),
        api_key_env=reader.optional("--api-key-env", variable_name),
        label=reader.needed("--label", str),
        out=reader.optional("--out", Path),
    )


def read_host(text: str | None) -> str:
    """The server's base URL; a slash or `/v1` at its end may be given or not."""
    if not text:
        raise CbbenchError("no server was given; expected --host http://ADDRESS:PORT")
    try:
        return root_of(address(text))
    except ValueError as error:
        raise CbbenchError(f"--host cannot be used; expected {error}") from error


def share(text: str) -> float:
    """0 <= share <= 1."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:
        raise ValueError("a share from 0 to 1")
    return value


def _read_users(users: int | None) -> int:
    if users is not None and users < 1:
        raise CbbenchError(f"--users is {users}; expected a whole number >= 1")
    return 1 if users is None else users


def _prompt_form(reader: _Reader) -> PromptForm | None:
    form = reader.needed("--prompt-form", one_of("auto", "ids", "text"))
    return None if form == "auto" else cast(PromptForm, form)


class _Reader:
    """Takes values by their option's flag; what was left out has the option's default."""

    def __init__(self, given: Mapping[str, Any]) -> None:
        self._given = given
        self._known = {argument.flag: argument for argument in ARGUMENTS}

    def needed(self, flag: str, parse: Callable[[str], T]) -> T:
        value = self.optional(flag, parse)
        assert value is not None, f"{flag} has no default"
        return value

    def optional(self, flag: str, parse: Callable[[str], T]) -> T | None:
        argument = self._known[flag]
        value = self._given.get(argument.name)
        text = argument.default if value is None else value
        if text is None:
            return None
        try:
            return parse(str(text).strip())
        except ValueError as error:
            shown = "not shown" if parse is variable_name else repr(str(text))
            raise CbbenchError(f"{flag} is {shown}; expected {error}") from error

    def switch(self, flag: str) -> bool:
        return bool(self._given.get(self._known[flag].name))
