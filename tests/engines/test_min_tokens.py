"""`min_tokens` and `noise_id`: what every in-process engine makes of them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from engines.api import Request, Sampling
from engines.clock import WallClock
from engines.loop.executors.hashing import HashingExecutor
from engines.registry import BuildContext, build_engine, installed_engines, parse_engines
from workloads.sources import ScheduledSource

ENGINES = ["static[max_batch_size=3]", "continuous[max_num_batched_tokens=9,max_num_seqs=2]"]
PROMPTS = [(5, 6, 7), (90, 14, 30, 31, 55, 101, 77, 8, 9, 10), (40,)]


class Collector:
    def __init__(self):
        self.tokens = {}
        self.reasons = {}

    def emit(self, events):
        for name, ids in zip(events.request_ids, events.token_ids, strict=True):
            self.tokens.setdefault(name, []).extend(ids)
        self.reasons |= {finish.request_id: finish.finish_reason for finish in events.finished}


@pytest.fixture(scope="module", params=ENGINES)
def serve(request, checkpoint):
    """Answers of one engine; it lives for the module."""
    installed = installed_engines()
    (spec,) = parse_engines(request.param, installed)
    context = BuildContext(
        model=str(checkpoint("llama")), dtype="float32", device="cpu", threads=1, kv_memory=2**24
    )
    engine = build_engine(spec, installed[spec.name], context)

    def run(requests):
        collector, clock = Collector(), WallClock()
        engine.run(ScheduledSource(requests, clock), collector, clock)
        return collector

    yield run
    engine.close()


def requests(**fields):
    return [Request(f"r{i}", prompt, 12, **fields) for i, prompt in enumerate(PROMPTS)]


@pytest.mark.parametrize("sampling", [Sampling(), Sampling(temperature=1.0, seed=3)])
def test_no_stop_token_is_chosen_among_the_first(serve, sampling):
    free = serve(requests(sampling=sampling))
    stops = {name: (ids[0], ids[2]) for name, ids in free.tokens.items()}
    bound = [replace(r, stop_token_ids=stops[r.request_id]) for r in requests(sampling=sampling)]
    assert all(len(ids) == 1 for ids in serve(bound).tokens.values())
    held = serve([replace(request, min_tokens=5) for request in bound])
    for name, ids in held.tokens.items():
        assert len(ids) >= 5
        assert not set(stops[name]) & set(ids[:5])


def test_the_end_token_is_held_off_too(serve):
    def answer(seed, min_tokens=0):
        nearly_uniform = Sampling(temperature=100.0, seed=seed)
        request = Request("e", (5,), 80, 0.0, nearly_uniform, False, min_tokens=min_tokens)
        return serve([request]).tokens["e"]

    seed, ended = next((s, ids) for s in range(30) if 1 < len(ids := answer(s)) < 70)
    assert ended[-1] == 2
    held = answer(seed, len(ended) + 3)
    assert 2 not in held[: len(ended) + 3]
    assert held[: len(ended) - 1] == ended[:-1]


def test_equal_noise_ids_and_seeds_draw_the_same(serve):
    drawn = Sampling(temperature=1.0, seed=7, noise_id="")
    same = [Request(name, PROMPTS[0], 12, sampling=drawn) for name in "ab"]
    own = [replace(r, sampling=replace(drawn, noise_id=None)) for r in same]
    tokens = serve(same).tokens
    assert tokens["a"] == tokens["b"]
    tokens = serve(own).tokens
    assert tokens["a"] != tokens["b"]


def test_the_hashing_executor_keeps_to_it_as_well():
    from engines.loop.executors.api import Batch, Row

    def token(forbidden, below):
        row = Row("r", (1, 2), 0, (0,), True, Sampling(), 0, forbidden, below)
        return HashingExecutor(1, 16, 10).submit(Batch(0, [row])).result().tokens[0][0]

    free = token((), 0)
    assert token({free}, 3) == (free + 1) % 10
    assert token({free}, 2) == free
