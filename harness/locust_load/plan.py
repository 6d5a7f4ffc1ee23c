"""What a run sends, and which of it each worker sends.

Every process draws the workload for itself from the same seed, so no prompt crosses the wire and
the hashes can be compared. Sends nothing and waits for nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from engines.api import Request
from harness.locust_load.options import LoadOptions
from workloads.loads import Load, all_at_once, at_rate, own_times
from workloads.sources import sets_arrivals
from workloads.workload import (
    Encode,
    ModelLimits,
    Workload,
    at_load,
    draw,
    open_workload,
    warmup_requests,
)


@dataclass(frozen=True, slots=True)
class LoadPlan:
    """The requests with their absolute schedule. Without a schedule the loop is closed."""

    workload: Workload
    load: Load
    requests: tuple[Request, ...]
    warmup: tuple[Request, ...]

    @property
    def closed_loop(self) -> bool:
        return sets_arrivals(self.requests, self.load)

    def chains(self) -> list[list[int]]:
        """The indices of requests that come one after another, in the order in which they begin.

        In a closed loop those are the turns of a session, else each is alone.
        """
        order = sorted(range(len(self.requests)), key=lambda i: (self.requests[i].scheduled_s, i))
        found: dict[object, list[int]] = {}
        for index in order:
            session = self.requests[index].session if self.closed_loop else None
            found.setdefault(index if session is None else session, []).append(index)
        return list(found.values())

    def share(self, worker: int, workers: int) -> list[list[int]]:
        """The chains that one worker of several plays; all shares together are all chains."""
        return self.chains()[worker::workers]


def draw_plan(options: LoadOptions, limits: ModelLimits, encode: Encode | None = None) -> LoadPlan:
    """Raises `CbbenchError` for a workload that cannot be opened or drawn so."""
    config = open_workload(options.workload, trace_format=options.trace_format)
    drawn = draw(
        config,
        seed=options.seed,
        limits=limits,
        num_prompts=options.num_prompts,
        input_len=options.input_len,
        output_len=options.output_len,
        range_ratio=options.range_ratio,
        burstiness=options.burstiness,
        trace_scale=options.trace_scale,
        encode=encode,
    )
    load = choose_load(drawn, options.request_rate, options.users)
    warmup = warmup_requests(drawn, options.num_warmups, limits)
    return LoadPlan(
        workload=drawn,
        load=load,
        requests=_with_eos(at_load(drawn, load), options.ignore_eos),
        warmup=_with_eos(warmup, options.ignore_eos),
    )


def choose_load(workload: Workload, request_rate: float | None, users: int) -> Load:
    """An open loop at the rate, or at a trace's own times; else a closed loop of the users."""
    if request_rate is not None:
        return at_rate(request_rate, users)
    if workload.own_times and workload.base_rate < math.inf:
        return own_times(workload, users)
    return all_at_once(users)


def _with_eos(requests: Sequence[Request], ignore_eos: bool) -> tuple[Request, ...]:
    return tuple(replace(request, ignore_eos=ignore_eos) for request in requests)
