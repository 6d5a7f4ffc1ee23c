"""The default model behind the server: its text is that of the same engine in process."""

from __future__ import annotations

import threading

import pytest

pytest.importorskip("torch")

from engines.api import Request, Sampling
from engines.clock import WallClock
from engines.registry import (
    BuildContext,
    build_engine,
    installed_engines,
    parse_engines,
)
from workloads.sources import ScheduledSource

pytestmark = pytest.mark.loopback

ENGINES = [
    "continuous[max_num_seqs=8]",
    "static[max_batch_size=4]",
    "dynamic[max_batch_size=4,max_delay_ms=1]",
]
OPTIONS = ("--dtype", "float32", "--device", "cpu", "--kv-memory", "64MiB")
PROMPT = "Zürich 🔥, the rest of it"


class Collector:
    def __init__(self):
        self.tokens = []

    def emit(self, events):
        for ids in events.token_ids:
            self.tokens += ids


@pytest.fixture(scope="module", params=ENGINES)
def served(request, start_module):
    """A server of an engine, and what the same engine answers without one."""
    server = start_module(request.param, *OPTIONS)
    installed = installed_engines()
    (spec,) = parse_engines(request.param, installed)
    context = BuildContext(dtype="float32", device="cpu", threads=1, kv_memory=64 * 2**20)
    engine = build_engine(spec, installed[spec.name], context)

    def in_process(prompt, count, sampling):
        collector, clock = Collector(), WallClock()
        asked = Request("r", tuple(prompt), count, sampling=sampling)
        engine.run(ScheduledSource([asked], clock), collector, clock)
        return collector.tokens

    yield in_process, server
    engine.close()


def test_streamed_whole_and_in_process_answers_are_one(served, tokenizer):
    in_process, server = served
    ask = {"prompt": PROMPT, "max_tokens": 40, "ignore_eos": True, "return_token_ids": True}
    whole = server.post(**ask, temperature=0).json()["choices"][0]
    events = server.events(**ask, temperature=0)
    prompt = tokenizer.encode(PROMPT).ids
    ids = in_process(prompt, 40, Sampling())
    assert whole["token_ids"] == ids
    assert [i for e in events[:-1] for i in e["choices"][0]["token_ids"]] == ids
    assert whole["text"] == server.text_of(events) == tokenizer.decode(ids)
    stop = whole["text"][9:13]
    before = whole["text"][: whole["text"].index(stop)]
    assert server.post(**ask, temperature=0, stop=stop).json()["choices"][0]["text"] == before
    assert server.text_of(server.events(**ask, temperature=0, stop=[stop])) == before


def test_a_seed_decides_the_answer_whoever_runs_beside(served, tokenizer):
    in_process, server = served
    ask = {"prompt": PROMPT, "max_tokens": 20, "ignore_eos": True, "return_token_ids": True}
    drawn = {"temperature": 0.9, "top_p": 0.9, "top_k": 200, "seed": 5}

    def answer(**fields):
        return server.post(**ask | drawn | fields).json()["choices"][0]["token_ids"]

    alone = answer()
    beside = [
        threading.Thread(target=lambda seed=seed: answer(seed=seed, prompt=PROMPT * 3))
        for seed in range(3)
    ]
    for thread in beside:
        thread.start()
    assert answer() == alone
    for thread in beside:
        thread.join()
    assert answer(seed=6) != alone
    assert answer(seed=None) != alone
    sampling = Sampling(temperature=0.9, top_p=0.9, top_k=200, seed=5, noise_id="")
    assert in_process(tokenizer.encode(PROMPT).ids, 20, sampling) == alone


def test_a_conversation_is_answered(served):
    _, server = served
    messages = [{"role": "user", "content": "hello"}]
    answer = server.post("chat/completions", messages=messages, max_tokens=5, min_tokens=5).json()
    assert answer["usage"]["completion_tokens"] == 5
    assert server.metric("generation_tokens_total") > 0
