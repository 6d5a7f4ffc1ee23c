"""A loop in virtual time with a model that hashes what it reads, for all tests of this folder."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from engines.api import EngineInfo, Finish, ModelInfo, Request, RequestSource, StepEvents, StepRow
from engines.clock import VirtualClock
from engines.loop.executors.cost_model import CostModelExecutor, StepCost
from engines.loop.executors.hashing import HashingExecutor, hash_token
from engines.loop.kv.paged import PagedCache
from engines.loop.loop import EngineLoop
from workloads.sources import ClosedLoopSource, ScheduledSource

VOCABULARY = 4096


@dataclass
class Recording:
    """A sink that keeps everything, and what tests ask of it."""

    events: list[StepEvents] = field(default_factory=list)

    def emit(self, events: StepEvents) -> None:
        self.events.append(events)

    @property
    def rows(self) -> list[StepRow]:
        return [e.step for e in self.events if e.step is not None]

    @property
    def finishes(self) -> dict[str, Finish]:
        return {f.request_id: f for e in self.events for f in e.finished}

    @property
    def finish_count(self) -> int:
        return sum(len(e.finished) for e in self.events)

    def tokens(self) -> dict[str, list[int]]:
        out: dict[str, list[int]] = {}
        for e in self.events:
            for name, ids in zip(e.request_ids, e.token_ids, strict=True):
                out.setdefault(name, []).extend(ids)
        return out

    def times(self) -> dict[str, list[float]]:
        out: dict[str, list[float]] = {}
        for e in self.events:
            for name in e.request_ids:
                out.setdefault(name, []).append(e.time_s)
        return out

    def end_s(self) -> dict[str, float]:
        return {f.request_id: e.time_s for e in self.events for f in e.finished}


@dataclass
class Lab:
    """One loop in virtual time and all its parts."""

    loop: EngineLoop[Any]
    cache: PagedCache
    clock: VirtualClock
    sink: Recording

    def run(self, source: RequestSource) -> Recording:
        self.loop.run(source, self.sink, self.clock)
        return self.sink

    def play(self, requests: Iterable[Request]) -> Recording:
        return self.run(ScheduledSource(list(requests), self.clock))

    def play_closed(self, requests: Iterable[Request], concurrency: int) -> Recording:
        source = ClosedLoopSource(list(requests), self.clock, concurrency)
        recording = self.sink

        class Tee:
            def emit(self, events: StepEvents) -> None:
                recording.emit(events)
                source.emit(events)

        self.loop.run(source, Tee(), self.clock)
        return recording


def make_lab(
    policy: Any,
    *,
    num_blocks: int = 1000,
    block_size: int = 16,
    cost: StepCost | None = None,
    max_model_len: int = 100_000,
    prefix_caching: bool = False,
    executor: Any = None,
    cache: Any = None,
    model: ModelInfo | None = None,
) -> Lab:
    clock = VirtualClock()
    cache = cache or PagedCache(num_blocks, block_size, prefix_caching=prefix_caching)
    tokens = executor or HashingExecutor(num_blocks, block_size, VOCABULARY)
    timed = CostModelExecutor(clock, cost or StepCost(per_step_s=1.0), tokens)
    info = EngineInfo("loop", {}, max_model_len, policy.limits.max_num_seqs, model=model)
    return Lab(EngineLoop(policy, cache, timed, info), cache, clock, Recording())


def make_request(
    name: str, prompt: int | Sequence[int], answer: int | None, **more: Any
) -> Request:
    """A request with its own tokens: `prompt` is their number, or the tokens themselves."""
    if isinstance(prompt, int):
        seed = sum(ord(c) * 31**i for i, c in enumerate(name))
        prompt = [(seed * 7919 + 13 * i) % VOCABULARY for i in range(prompt)]
    return Request(name, tuple(prompt), answer, **more)


def expected_tokens(request: Request) -> list[int]:
    """What an undisturbed model answers."""
    context = list(request.prompt_token_ids)
    for _ in range(request.max_tokens or 0):
        context.append(hash_token(context, VOCABULARY))
    return context[len(request.prompt_token_ids) :]


@pytest.fixture(scope="session")
def lab() -> Callable[..., Lab]:
    return make_lab


@pytest.fixture(scope="session")
def request_of() -> Callable[..., Request]:
    return make_request


@pytest.fixture(scope="session")
def answer_of() -> Callable[[Request], list[int]]:
    return expected_tokens
