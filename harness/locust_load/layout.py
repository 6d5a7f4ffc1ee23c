"""What the master finds out and fixes before any worker is asked: the server, the plan, the folder.

Everything that a user can have got wrong comes out here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from engines.api import CbbenchError, JsonValue
from engines.models.limits import prompt_limits
from harness.environment import describe_environment
from harness.locust_load.connections import Connections
from harness.locust_load.key import ApiKey
from harness.locust_load.options import LoadOptions, PromptForm
from harness.locust_load.plan import LoadPlan
from harness.locust_load.probe import ServerFacts, ask_models, takes_token_ids
from harness.locust_load.stage import draw_for
from harness.locust_load.tokens import Texts
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
    notes: tuple[str, ...] = ()


def lay_out(options: LoadOptions, locust_version: str) -> Layout:
    """Raises `CbbenchError` for every mistake; only then a folder is made."""
    parse_goodput(options.goodput)
    key = ApiKey.from_environment(options.api_key_env)
    connections = Connections(options.host)
    try:
        facts = ask_models(connections, key, options.model)
        limits, notes = resolve_limits(options, facts)
        form = options.prompt_form
        if form is None:
            takes_ids = takes_token_ids(connections, key, options)
            form = "ids" if takes_ids else "text"
    finally:
        connections.close()
    if options.api == "chat" and form == "ids":
        raise CbbenchError("the chat endpoint takes no token ids; leave out --prompt-form ids")
    plan = draw_for(options, limits, Texts(options.tokenizer or options.model))
    folder = claim(options.out, run_id(options.workload, options.identity(), datetime.now()))
    return Layout(options, limits, form, plan, folder, _environment(locust_version), notes)


def resolve_limits(options: LoadOptions, facts: ServerFacts) -> tuple[ModelLimits, tuple[str, ...]]:
    """As the engine `openai` resolves them, so that both draw the same; and what was assumed."""
    known = prompt_limits(options.tokenizer or options.model)
    vocab_size, special = known.prompts.vocab_size, known.prompts.special_token_ids
    if options.vocab_size is not None:
        vocab_size = options.vocab_size
        special = tuple(i for i in special if i < vocab_size)
    longest = min(facts.max_model_len or known.max_model_len, known.max_model_len)
    is_known = options.vocab_size is not None or not known.note
    limits = ModelLimits(vocab_size, options.max_model_len or longest, special)
    return limits, () if is_known else (known.note,)


def _environment(locust_version: str) -> dict[str, JsonValue]:
    """The load generator's machine; the server's is not known here."""
    return {"load_generator": f"locust {locust_version}", **describe_environment()}
