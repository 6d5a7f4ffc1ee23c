"""All engines give the same greedy tokens in float32, whatever the batch, the blocks, the memory.

Two rows computed in differently shaped batches can differ in the last bits, so answers are compared
up to the first position at which the two best logits of the model's own forward pass are closer
than `TOLERANCE`.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest

from engines.api import Request, StepEvents
from engines.clock import WallClock
from engines.loop.policies.registry import installed_policies
from engines.registry import BuildContext, build_engine, installed_engines, parse_engines
from workloads.sources import ScheduledSource

TOLERANCE = 1e-4
FAMILIES = ["llama", "qwen3", "mistral", "gpt2"]
ENGINES = [
    "sequential",
    "static[max_batch_size=4]",
    "static[max_batch_size=4,cache=dynamic]",
    "dynamic[max_batch_size=3,max_delay_ms=0]",
    "continuous",
    "continuous[max_num_batched_tokens=7,max_num_seqs=5,block_size=1,num_blocks=400]",
    "continuous[max_num_batched_tokens=64,block_size=5]",
    "continuous[block_size=3,num_blocks=32,max_num_seqs=6]",
    "continuous[enable_chunked_prefill=false,block_size=16]",
    "continuous[prefix_caching=true,block_size=4,max_num_batched_tokens=48]",
    "continuous[block_size=3,num_blocks=32,max_num_seqs=6,preemption=swap]",
    "continuous[allocator=contiguous]",
    "continuous[allocator=contiguous,reserve=pow2,block_size=3,num_blocks=60]",
    "loop[policy=orca,allocator=contiguous,reserve=exact,block_size=5,num_blocks=20]",
    "loop[policy=static,max_num_seqs=4]",
    "loop[policy=window,max_num_seqs=3,max_delay_ms=0]",
]
MEMORIES = [
    "allocator=paged",
    "block_size=3,num_blocks=32",
    "block_size=4,prefix_caching=true",
    "allocator=contiguous,reserve=pow2,block_size=3,num_blocks=60",
]
ORDERS = ["priority", "sjf", "srpt", "fair"]
PREEMPTING = "continuous[block_size=3,num_blocks=32,max_num_seqs=6"


def policies_in(*memories: str, setting: str = "policy") -> list[str]:
    """Each installed policy that has `setting`, six residents at most, in these memories."""
    found = []
    for name, entry in installed_policies().items():
        own = {own.name for own in entry.settings}
        if setting in {"policy", *own}:
            seats = ",max_num_seqs=6" if "max_num_seqs" in own else ""
            found += [f"loop[policy={name}{seats},{memory}]" for memory in memories]
    return found


def policies_in_each_order() -> list[str]:
    scarce = MEMORIES[1]
    return policies_in(*(f"{scarce},order={order}" for order in ORDERS), setting="order")


class Collector:
    def __init__(self) -> None:
        self.tokens: dict[str, list[int]] = {}
        self.finishes = {}

    def emit(self, events: StepEvents) -> None:
        for name, ids in zip(events.request_ids, events.token_ids, strict=True):
            self.tokens.setdefault(name, []).extend(ids)
        self.finishes |= {finish.request_id: finish for finish in events.finished}


def requests() -> list[Request]:
    """Twelve prompts of 2 to 40 tokens; two begin alike, so that a prefix may be shared."""
    lengths = [2, 5, 17, 1, 33, 8, 12, 40, 3, 20, 26, 9]
    made = []
    for index, length in enumerate(lengths):
        prompt = [3 + (index * 37 + 11 * j * (j + index)) % 120 for j in range(length)]
        request = Request(f"r{index}", tuple(prompt), 4 + (index * 7) % 30)
        made.append(replace(request, priority=index % 3, request_class="ab"[index % 2]))
    twin = (*made[7].prompt_token_ids[:20], 5, 6, 7)
    return [*made, Request("twin", twin, 12)]


@pytest.fixture(scope="module")
def answers(checkpoint):
    """`answers(family)`: each request's greedy tokens and the gap at each, one row at a time."""

    @cache
    def make(family):
        import torch
        from transformers import AutoModelForCausalLM

        model = AutoModelForCausalLM.from_pretrained(checkpoint(family), dtype=torch.float32)
        model.eval()
        return {request.request_id: greedy(model, request) for request in requests()}

    return make


def greedy(model, request):
    import torch

    tokens, gaps = list(request.prompt_token_ids), []
    with torch.inference_mode():
        for _ in range(request.max_tokens):
            logits = model(torch.tensor([tokens]), use_cache=False).logits[0, -1]
            best = torch.topk(logits, 2).values
            gaps.append(float(best[0] - best[1]))
            tokens.append(int(torch.argmax(logits)))
    return tokens[len(request.prompt_token_ids) :], gaps


def serve(text, folder):
    installed = installed_engines()
    (spec,) = parse_engines(text, installed)
    context = BuildContext(
        model=str(folder), dtype="float32", device="cpu", threads=1, kv_memory=16 * 2**20
    )
    engine = build_engine(spec, installed[spec.name], context)
    collector, clock = Collector(), WallClock()
    engine.run(ScheduledSource(requests(), clock), collector, clock)
    engine.close()
    return collector


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("engine", ENGINES)
def test_greedy_answers_are_those_of_the_model_alone(checkpoint, answers, engine, family):
    served = serve(engine, checkpoint(family))
    check_answers(served, answers(family))
    if engine.startswith(PREEMPTING):
        preempted = sum(f.stats.num_preemptions for f in served.finishes.values())
        assert preempted > 0, "the pool was meant to be too small"
        swapped = sum(f.stats.swapped_tokens for f in served.finishes.values())
        assert (swapped > 0) == ("swap" in engine)
    if "prefix_caching=true" in engine:
        assert served.finishes["twin"].stats.prefix_hit_tokens == 20


@pytest.mark.parametrize("engine", policies_in(*MEMORIES))
@pytest.mark.parametrize("family", ["llama", "mistral"])
def test_every_installed_policy_gives_them_in_every_memory(checkpoint, answers, engine, family):
    check_answers(serve(engine, checkpoint(family)), answers(family))


@pytest.mark.parametrize("engine", policies_in_each_order())
def test_every_order_gives_them_when_memory_is_short(checkpoint, answers, engine):
    check_answers(serve(engine, checkpoint("llama")), answers("llama"))


def test_policies_are_found_where_they_are_installed():
    """What is not in the lists above is not held to anything."""
    names = {"chunked", "orca", "prefill-first", "static", "window"}
    assert names <= set(installed_policies())
    assert len(policies_in(*MEMORIES)) == len(MEMORIES) * len(installed_policies())
    assert len(policies_in_each_order()) >= len(ORDERS) * 3


def check_answers(served, expected_of):
    assert {finish.status for finish in served.finishes.values()} == {"ok"}
    compared = 0
    for request in requests():
        expected, gaps = expected_of[request.request_id]
        got = served.tokens[request.request_id]
        assert len(got) == request.max_tokens
        clear = next((i for i, gap in enumerate(gaps) if gap < TOLERANCE), len(gaps))
        assert got[:clear] == expected[:clear], request.request_id
        compared += clear
    asked = sum(request.max_tokens for request in requests())
    assert compared > 0.9 * asked, "near-ties left too little to compare"
