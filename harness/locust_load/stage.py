"""Everything of a worker that stands ready before t0: requests, bodies, connections, a warm server.

Measures nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from engines.api import Request
from engines.clock import WallClock
from harness.locust_load import tokens
from harness.locust_load.bodies import ApiKey, BodyForm
from harness.locust_load.calls import Caller
from harness.locust_load.connections import Connections
from harness.locust_load.exchange import Answer
from harness.locust_load.messages import Prepare
from harness.locust_load.options import LoadOptions
from harness.locust_load.plan import LoadPlan, draw_plan, share
from workloads.config import TextPrompts
from workloads.workload import ModelLimits, open_workload

_MOST_OPENED: Final = 256


@dataclass(frozen=True, slots=True)
class Stage:
    """`indices` are this worker's, in order; `warmups` requests were answered before the run."""

    plan: LoadPlan
    indices: tuple[int, ...]
    caller: Caller
    clock: WallClock
    warmups: int


def draw_for(options: LoadOptions, limits: ModelLimits) -> LoadPlan:
    """The plan, with the model's tokenizer where the workload is made of texts."""
    encode = partial(tokens.encode, options.tokenizer, chat=options.chat_template)
    return draw_plan(options, limits, encode)


def set_stage(options: LoadOptions, order: Prepare, users: int) -> Stage:
    """Raises `CbbenchError` when this worker cannot take part."""
    plan = draw_for(options, order.limits)
    indices = share(plan.requests, order.worker, order.workers)
    warmup = plan.warmup[order.worker :: order.workers]
    mine = [plan.requests[index] for index in indices]
    texts = {} if order.prompt_form == "ids" else prompt_texts(options, [*mine, *warmup])
    clock = WallClock()
    caller = Caller(
        Connections(options.host),
        BodyForm(options.api, options.model, order.prompt_form, texts),
        ApiKey.from_environment(options.api_key_env),
        clock.now,
        options.idle_timeout_s,
    )
    warmups = warm_up(caller, warmup)
    open_ahead(caller.connections, min(users, len(indices), _MOST_OPENED))
    return Stage(plan, tuple(indices), caller, clock, warmups)


def prompt_texts(options: LoadOptions, requests: Sequence[Request]) -> dict[str, str]:
    """The prompts as text by request id: a file's own texts, or decoded token ids.

    A chat template is the server's to apply at the chat endpoint, and ours before the other.
    """
    content = open_workload(options.workload, trace_format=options.trace_format).content
    own: dict[str, str] = {}
    if isinstance(content, TextPrompts) and (options.api == "chat" or not options.chat_template):
        own = {f"{place:05d}": prompt.text for place, prompt in enumerate(content.prompts)}
    drawn = [request for request in requests if request.request_id not in own]
    decoded = tokens.decode(options.tokenizer, [r.prompt_token_ids for r in drawn]) if drawn else []
    return own | {request.request_id: text for request, text in zip(drawn, decoded, strict=True)}


def warm_up(caller: Caller, requests: Sequence[Request]) -> int:
    """Sends them all at once and returns how many were answered."""
    answers: list[Answer] = []
    _all_at_once([partial(lambda r: answers.append(caller.prepare(r).run()), r) for r in requests])
    return sum(answer.status == "ok" for answer in answers)


def open_ahead(connections: Connections, number: int) -> None:
    """So many connections at least stand ready, as far as the server lets us in."""

    def open_one() -> None:
        try:
            connections.give_back(connections.open())
        except OSError:
            return

    _all_at_once([open_one] * max(0, number - connections.num_idle))


def _all_at_once(jobs: Sequence[Callable[[], object]]) -> None:
    threads = [threading.Thread(target=job, daemon=True) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
