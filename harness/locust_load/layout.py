"""What the master finds out and fixes before any worker is asked: the server, the plan, the folder.

Everything that a user can have got wrong comes out here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from engines.api import CbbenchError, JsonValue
from harness.environment import describe_environment
from harness.locust_load import tokens
from harness.locust_load.bodies import ApiKey
from harness.locust_load.connections import Connections
from harness.locust_load.options import LoadOptions, PromptForm
from harness.locust_load.plan import LoadPlan
from harness.locust_load.probe import ServerFacts, ask_models, takes_token_ids
from harness.locust_load.stage import draw_for
from harness.metrics import parse_goodput
from harness.run.folder import RunFolder, claim, run_id
from workloads.workload import ModelLimits


@dataclass(frozen=True, slots=True)
class Layout:
    """A run that can begin."""

    options: LoadOptions
    limits: ModelLimits
    prompt_form: PromptForm
    plan: LoadPlan
    folder: RunFolder
    environment: Mapping[str, JsonValue]


def lay_out(options: LoadOptions, locust_version: str) -> Layout:
    """Raises `CbbenchError` for every mistake; only then a folder is made."""
    parse_goodput(options.goodput)
    key = ApiKey.from_environment(options.api_key_env)
    connections = Connections(options.host)
    try:
        facts = ask_models(connections, key, options.model)
        limits = resolve_limits(options, facts)
        form = options.prompt_form
        if form is None:
            takes_ids = takes_token_ids(connections, key, options.api, options.model)
            form = "ids" if takes_ids else "text"
    finally:
        connections.close()
    if options.api == "chat" and form == "ids":
        raise CbbenchError("the chat endpoint takes no token ids; leave out --prompt-form ids")
    plan = draw_for(options, limits)
    folder = claim(options.out, run_id(options.workload, options.identity(), datetime.now()))
    return Layout(options, limits, form, plan, folder, _environment(locust_version))


def resolve_limits(options: LoadOptions, facts: ServerFacts) -> ModelLimits:
    """The vocabulary is the tokenizer's; the context is the shortest that anyone tells."""
    if options.vocab_size is not None:
        own = ModelLimits(options.vocab_size, 2**31)
    else:
        own = tokens.known_limits(options.tokenizer)
    told = [n for n in (own.max_model_len, facts.max_model_len) if n is not None]
    longest = min(told) if options.max_model_len is None else options.max_model_len
    if longest >= 2**31:
        raise CbbenchError(
            f"nobody tells the context of model {options.model!r}; give --max-model-len"
        )
    return replace(own, max_model_len=longest)


def _environment(locust_version: str) -> dict[str, JsonValue]:
    """The load generator's machine; the server's is not known here."""
    return {"load_generator": f"locust {locust_version}", **describe_environment()}
