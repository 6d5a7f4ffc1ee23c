"""A loop that idles, that is asked for nonsense, or that has run before."""

from __future__ import annotations

from dataclasses import replace

import pytest
from policies_by_name import POLICIES, REQUEST_LEVEL, policy_of

from engines.api import END, ModelInfo
from engines.loop.policies.chunked import ChunkedPolicy


class LateSource:
    """Open for two seconds with nothing in it; then one request comes, and then no more."""

    def __init__(self, request, clock):
        self.request, self.clock, self.waits = request, clock, 0
        self.is_taken = False

    def take(self, now_s, limit):
        if self.is_taken or now_s < 2.0:
            return []
        self.is_taken = True
        return [self.request]

    def next_due(self):
        if self.is_taken:
            return END
        return 2.0 if self.clock.now() >= 2.0 else float("inf")

    def cancelled(self):
        return ()

    def wait(self, until_s):
        self.waits += 1
        self.clock.sleep_until(min(until_s, 2.0))


@pytest.mark.parametrize("name", POLICIES)
def test_an_idle_loop_sleeps_and_counts_from_the_arrival(lab, request_of, answer_of, name):
    """Case M7: nothing for two seconds; a few looks a second, and no queue time for them."""
    world = lab(policy_of(name, max_num_seqs=1, max_delay_ms=0))
    request = request_of("a", 4, 3, scheduled_s=2.0)
    source = LateSource(request, world.clock)
    run = world.run(source)
    assert run.tokens() == {"a": answer_of(request)}
    assert source.waits <= 10
    assert run.times()["a"] == [3.0, 4.0, 5.0]
    assert run.finishes["a"].stats.queue_s == 0.0


@pytest.mark.parametrize("name", POLICIES)
def test_nonsense_in_the_middle_leaves_those_who_decode_alone(lab, request_of, answer_of, name):
    """Case M4: no tokens asked for, an empty prompt, no bound at all, while two others decode.

    Prefill-first makes them wait for a prompt, by its own rule.
    """

    def world_of():
        seqs = 2 if name in REQUEST_LEVEL else 8
        policy = policy_of(name, max_num_seqs=seqs, max_num_batched_tokens=64, max_delay_ms=0)
        return lab(policy, max_model_len=30)

    decoding = [request_of("a", 4, 12), request_of("b", 6, 12)]
    odd = [
        request_of("zero", 5, 0, scheduled_s=3.5),
        request_of("empty", 0, 5, scheduled_s=3.5),
        request_of("open", 10, None, scheduled_s=3.5),
    ]
    alone = world_of().play(decoding)
    world = world_of()
    run = world.play([*decoding, *odd])
    statuses = {name: finish.status for name, finish in run.finishes.items()}
    assert statuses == {"a": "ok", "b": "ok", "open": "ok", "zero": "rejected", "empty": "rejected"}
    assert run.end_s()["zero"] == run.end_s()["empty"] == 4.0
    assert len(run.tokens()["open"]) == 20
    for request in decoding:
        assert run.tokens()[request.request_id] == answer_of(request)
        pause_s = 1.0 if name == "prefill-first" else 0.0
        expected = [t if t <= 4.0 else t + pause_s for t in alone.times()[request.request_id]]
        assert run.times()[request.request_id] == expected
    assert world.cache.free_blocks == world.cache.num_blocks


@pytest.mark.parametrize(
    ("seqs", "budget", "num_blocks"), [(16, 512, 1000), (16, 24, 1000), (16, 64, 12)]
)
def test_forced_lengths_are_exact_however_many_run(
    lab, request_of, answer_of, seqs, budget, num_blocks
):
    """Case Q6: sixteen of 32 tokens, alone and together, with ends of sequence on their way."""
    requests = [request_of(f"r{i}", 3 + i, 32) for i in range(16)]
    ends = tuple({answer_of(request)[7] for request in requests})
    model = ModelInfo("m", 4096, 1000, ends, (), 0, 0, "float32", "cpu")
    world = lab(ChunkedPolicy(seqs, budget), num_blocks=num_blocks, model=model)
    run = world.play(requests)
    assert run.tokens() == {r.request_id: answer_of(r) for r in requests}
    assert {len(tokens) for tokens in run.tokens().values()} == {32}
    assert {f.finish_reason for f in run.finishes.values()} == {"length"}
    free = [replace(request, ignore_eos=False) for request in requests]
    stopped = lab(ChunkedPolicy(seqs, budget), num_blocks=num_blocks, model=model).play(free)
    assert max(len(tokens) for tokens in stopped.tokens().values()) <= 8
    assert {f.finish_reason for f in stopped.finishes.values()} == {"stop"}


@pytest.mark.parametrize("name", POLICIES)
def test_a_reset_leaves_no_prefix_to_the_next_run(lab, request_of, name):
    """Case L1: the second run computes as much as the first."""
    policy = policy_of(name, max_num_seqs=4, max_num_batched_tokens=64, max_delay_ms=0)
    world = lab(policy, block_size=4, prefix_caching=True)
    request = request_of("a", 33, 2)
    world.play([request])
    kept = world.cache.cached_blocks
    world.loop.reset()
    assert kept > 0
    assert world.cache.cached_blocks == 0
    world.sink.events.clear()
    again = world.play([replace(request, scheduled_s=world.clock.now())])
    assert again.finishes["a"].stats.prefix_hit_tokens == 0
    assert sum(row.prompt for row in again.rows) == 33


def test_a_reset_reaches_the_executor(lab):
    world = lab(ChunkedPolicy(4, 64))
    executor = world.loop.parts[2]
    told = []
    executor.reset = lambda: told.append("reset")
    world.loop.reset()
    assert told == ["reset"]


def test_a_stopped_loop_runs_again(lab, request_of, answer_of):
    world = lab(ChunkedPolicy(4, 64))
    inner = world.sink.emit

    def stop_after_two(events):
        inner(events)
        if len(world.sink.rows) == 2:
            world.loop.stop()

    world.sink.emit = stop_after_two
    assert world.play([request_of("a", 4, 50)]).finishes["a"].status == "cancelled"
    world.sink.emit = inner
    late = request_of("b", 4, 3, scheduled_s=world.clock.now())
    run = world.play([late])
    assert run.finishes["b"].status == "ok"
    assert run.tokens()["b"] == answer_of(late)
