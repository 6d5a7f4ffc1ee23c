"""Properties of every run: random requests, tiny pools, several block sizes, a hashing model."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from loop_watching import (
    BLOCK_SIZES,
    CONTEXT,
    DRAWN,
    MEMORIES,
    CheckedExecutor,
    LeavingSource,
    Watcher,
    check_ledger,
    check_outcomes,
    could_run,
    memory_of,
    order_of,
    policies,
    requests_from,
    shapes,
)

from engines.loop.executors.cost_model import StepCost
from engines.loop.kv.contiguous import RESERVES
from engines.loop.policies.chunked import ChunkedPolicy
from engines.loop.policies.registry import installed_policies


def test_every_built_in_policy_is_held_to_the_invariants():
    installed = installed_policies().items()
    built_in = {name for name, entry in installed if entry.make.__module__.startswith("engines.")}
    assert built_in == DRAWN.keys()


@settings(max_examples=5, deadline=None)
@given(data=st.data(), name=st.sampled_from(sorted(DRAWN)))
def test_a_policy_is_drawn_by_its_name(data, name):
    assert data.draw(DRAWN[name]).name == name


@settings(max_examples=350, deadline=None)
@given(
    policy=policies,
    shapes=shapes,
    block_size=st.sampled_from(BLOCK_SIZES),
    tokens=st.integers(16, 120),
    memory=st.sampled_from(MEMORIES),
    leaves=st.dictionaries(st.integers(0, 9), st.floats(0, 20), max_size=3),
)
def test_every_run_keeps_the_invariants(
    lab, answer_of, policy, shapes, block_size, tokens, memory, leaves
):
    num_blocks = -(-tokens // block_size)
    context = min(CONTEXT, num_blocks * block_size) if memory == "max" else CONTEXT
    requests = requests_from(shapes, alike=memory == "prefixes")
    watcher = Watcher(policy)
    cache = memory_of(memory, num_blocks, block_size, context)
    executor = CheckedExecutor(num_blocks, block_size, watcher, cache)
    world = lab(
        watcher,
        cost=StepCost(0.1, 0.01, 0.001),
        executor=executor,
        cache=cache,
        max_model_len=context,
    )
    leaves = {f"r{i}": at_s for i, at_s in leaves.items()}
    run = world.run(LeavingSource(requests, leaves, world.clock))
    possible = {
        r.request_id
        for r in requests
        if could_run(r, policy, memory, block_size, num_blocks, context)
    }
    check_outcomes(run, requests, possible, leaves, answer_of)
    check_ledger(run, requests, executor, watcher, num_blocks)
    if memory in RESERVES and not order_of(policy).preempts:
        assert watcher.preemptions == 0, "a region was reserved whole, yet memory ran out"
    if memory not in RESERVES:
        assert not any(row.lost_to_fragmentation for row in run.rows)
    assert world.cache.free_blocks == num_blocks
    assert world.cache.tables == {}


@settings(max_examples=60, deadline=None)
@given(
    shapes=st.lists(st.tuples(st.integers(1, 12), st.integers(6, 16), st.just(0.0)), min_size=3),
    block_size=st.sampled_from(BLOCK_SIZES),
    budget=st.integers(2, 30),
)
def test_output_does_not_depend_on_memory_or_budget(lab, answer_of, shapes, block_size, budget):
    requests = requests_from(shapes)
    longest = max(len(r.prompt_token_ids) + r.max_tokens for r in requests)
    num_blocks = -(-longest // block_size)  # room for hardly more than one
    run = lab(ChunkedPolicy(8, budget), num_blocks=num_blocks, block_size=block_size).play(requests)
    assert run.tokens() == {r.request_id: answer_of(r) for r in requests}
    allowed = sum(r.max_tokens for r in requests)
    assert sum(row.preemptions for row in run.rows) <= allowed, "more preemptions than progress"


@settings(max_examples=150, deadline=None)
@given(
    shapes=st.lists(
        st.tuples(st.integers(1, 3), st.integers(6, 12), st.sampled_from([0.0, 0.5])),
        min_size=4,
        max_size=7,
    ),
    seqs=st.integers(4, 6),
    budget=st.integers(2, 3),
    block_size=st.sampled_from([1, 2, 3]),
    tokens=st.integers(15, 30),
)
def test_residents_that_take_turns_share_scarce_memory(
    lab, answer_of, shapes, seqs, budget, block_size, tokens
):
    """More residents than budget and too little memory: victims may have work in this step."""
    requests = requests_from(shapes)
    num_blocks = -(-tokens // block_size)
    watcher = Watcher(ChunkedPolicy(seqs, budget))
    executor = CheckedExecutor(num_blocks, block_size)
    world = lab(watcher, num_blocks=num_blocks, block_size=block_size, executor=executor)
    run = world.play(requests)
    assert run.tokens() == {r.request_id: answer_of(r) for r in requests}
    check_ledger(run, requests, executor, watcher, num_blocks)
    assert world.cache.free_blocks == num_blocks
