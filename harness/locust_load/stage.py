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
from engines.remote.body import BodyWriter, Decode
from harness.locust_load.calls import Caller
from harness.locust_load.connections import Connections
from harness.locust_load.exchange import Answer
from harness.locust_load.key import ApiKey
from harness.locust_load.messages import Prepare
from harness.locust_load.options import LoadOptions
from harness.locust_load.plan import LoadPlan, draw_plan
from harness.locust_load.tokens import Texts
from workloads.config import TextPrompts
from workloads.workload import ModelLimits, open_workload

_MOST_OPENED: Final = 256


@dataclass(frozen=True, slots=True)
class Stage:
    """`chains` are this worker's; `warmups` requests were answered before the run."""

    plan: LoadPlan
    chains: Sequence[Sequence[int]]
    caller: Caller
    clock: WallClock
    warmups: int


def draw_for(options: LoadOptions, limits: ModelLimits, texts: Texts) -> LoadPlan:
    """The plan, with the model's tokenizer where the workload is made of texts."""
    return draw_plan(options, limits, partial(texts.encode, chat=options.chat_template))


def set_stage(options: LoadOptions, order: Prepare, users: int) -> Stage:
    """Raises `CbbenchError` when this worker cannot take part."""
    texts = Texts(options.tokenizer or options.model)
    plan = draw_for(options, order.limits, texts)
    remote = options.remote(order.prompt_form)
    clock = WallClock()
    caller = Caller(
        Connections(options.host),
        BodyWriter(
            remote, options.model, None if remote.sends_ids else _decoder(options, plan, texts)
        ),
        ApiKey.from_environment(options.api_key_env),
        clock.now,
        None if options.tokenizer is None else texts.counter(),
    )
    chains = plan.share(order.worker, order.workers)
    warmups = warm_up(caller, plan.warmup[order.worker :: order.workers])
    open_ahead(caller.connections, min(users, sum(map(len, chains)), _MOST_OPENED))
    return Stage(plan, chains, caller, clock, warmups)


def _decoder(options: LoadOptions, plan: LoadPlan, texts: Texts) -> Decode:
    """Token ids as text, where the ids came from a text just that text.

    A chat template is the server's to apply at the chat endpoint, and ours before the other.
    """
    content = open_workload(options.workload, trace_format=options.trace_format).content
    own: dict[Sequence[int], str] = {}
    if isinstance(content, TextPrompts) and (options.api == "chat" or not options.chat_template):
        ids = [request.prompt_token_ids for request in plan.workload.requests]
        own = dict(zip(ids, [prompt.text for prompt in content.prompts], strict=False))
    decode = texts.decoder()
    return lambda ids: own[ids] if ids in own else decode(ids)


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
