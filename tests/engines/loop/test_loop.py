"""What the loop promises, in virtual time: order, output, times and the ledger."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from engines.api import ModelInfo
from engines.loop.executors.cost_model import StepCost
from engines.loop.policies.chunked import ChunkedPolicy
from engines.loop.policies.static import StaticPolicy
from engines.loop.policies.window import WindowPolicy
from engines.loop.roster import Roster
from engines.loop.sequence import Sequence


def chunked(seqs=8, budget=64, **more):
    return ChunkedPolicy(seqs, budget, **more)


def test_every_request_gets_its_own_answer_whole(lab, request_of, answer_of):
    requests = [request_of(f"r{i}", 3 + 5 * i, 4 + i) for i in range(12)]
    run = lab(chunked()).play(requests)
    assert run.tokens() == {r.request_id: answer_of(r) for r in requests}
    assert {f.status for f in run.finishes.values()} == {"ok"}
    assert {f.finish_reason for f in run.finishes.values()} == {"length"}


def test_prompt_and_answer_execute_one_position_less_than_their_sum(lab, request_of):
    run = lab(chunked()).play([request_of("a", 10, 5), request_of("b", 7, 1)])
    assert sum(row.prompt for row in run.rows) == 17
    assert sum(row.output for row in run.rows) == 4
    assert sum(row.executed for row in run.rows) == 21


def test_stop_token_ends_a_request_with_reason_stop(lab, request_of, answer_of):
    plain = request_of("a", 5, 10)
    stop = answer_of(plain)[3]
    run = lab(chunked()).play([request_of("a", 5, 10, stop_token_ids=(stop,))])
    assert run.tokens()["a"] == answer_of(plain)[:4]
    assert run.finishes["a"].finish_reason == "stop"


def test_end_of_sequence_stops_only_requests_that_do_not_ignore_it(lab, request_of, answer_of):
    plain = request_of("a", 5, 10)
    eos = answer_of(plain)[2]
    model = ModelInfo("m", 4096, 1000, (eos,), (), 0, 0, "float32", "cpu")
    forced, free = plain, replace(plain, request_id="b", ignore_eos=False)
    run = lab(chunked(), model=model).play([forced, free])
    assert run.tokens() == {"a": answer_of(plain), "b": answer_of(plain)[:3]}
    assert run.finishes["b"].finish_reason == "stop"


def test_times_of_a_request_add_up_to_its_end_to_end_time(lab, request_of):
    cost = StepCost(per_step_s=0.01, per_token_s=0.001)
    world = lab(chunked(seqs=4, budget=16), num_blocks=9, block_size=4, cost=cost)
    requests = [request_of(f"r{i}", 6, 8, scheduled_s=0.01 * i) for i in range(6)]
    run = world.play(requests)
    assert any(f.stats.num_preemptions for f in run.finishes.values())
    for request in requests:
        stats = run.finishes[request.request_id].stats
        total = stats.queue_s + stats.prefill_s + stats.decode_s + stats.preempted_s
        e2e = run.end_s()[request.request_id] - request.scheduled_s
        assert total == pytest.approx(e2e, abs=1e-9)
        assert min(stats.queue_s, stats.prefill_s, stats.decode_s, stats.preempted_s) >= 0


def test_queue_time_ends_with_the_first_planned_step(lab, request_of):
    run = lab(chunked(seqs=1)).play([request_of("a", 4, 3), request_of("b", 4, 1)])
    assert run.finishes["a"].stats.queue_s == 0
    assert run.finishes["b"].stats.queue_s == 3


def test_arrivals_in_the_future_are_waited_for(lab, request_of):
    run = lab(chunked()).play([request_of("a", 4, 1, scheduled_s=5.0)])
    assert run.end_s() == {"a": 6.0}
    assert run.rows[0].start_s == 5.0


def test_impossible_requests_are_rejected_and_those_behind_finish(lab, request_of):
    world = lab(chunked(), num_blocks=8, block_size=16, max_model_len=256)
    run = world.play(
        [
            request_of("too big for the pool", 100, 60),
            request_of("too long", 200, 100),
            request_of("empty", 0, 5),
            request_of("nothing asked", 5, 0),
            request_of("fits", 10, 5),
        ]
    )
    status = {name: finish.status for name, finish in run.finishes.items()}
    assert status.pop("fits") == "ok"
    assert set(status.values()) == {"rejected"}
    reasons = {name: finish.reason for name, finish in run.finishes.items()}
    assert "need 10 blocks of 16, the pool has 8" in reasons["too big for the pool"]
    assert "exceed the context of 256" in reasons["too long"]
    assert "prompt is empty" in reasons["empty"]
    assert "max_tokens is 0" in reasons["nothing asked"]


def test_request_that_fills_the_pool_to_the_last_slot_runs(lab, request_of, answer_of):
    exact = request_of("a", 100, 29)  # 128 positions, 8 blocks of 16
    run = lab(chunked(), num_blocks=8).play([exact, request_of("b", 100, 30)])
    assert run.tokens() == {"a": answer_of(exact)}
    assert run.finishes["b"].status == "rejected"


def test_answer_without_bound_goes_up_to_the_limit(lab, request_of):
    run = lab(chunked(), num_blocks=4, max_model_len=50).play([request_of("a", 10, None)])
    assert len(run.tokens()["a"]) == 40
    run = lab(chunked(), num_blocks=2, max_model_len=50).play([request_of("a", 10, None)])
    assert len(run.tokens()["a"]) == 23


def test_a_name_that_is_being_served_is_refused(lab, request_of, answer_of):
    first = request_of("a", 4, 4)
    run = lab(chunked()).play([first, request_of("a", 9, 9, scheduled_s=0.5)])
    assert run.tokens()["a"] == answer_of(first)
    assert run.finish_count == 2


def test_unchunked_prompts_beyond_the_budget_are_rejected_with_both_numbers(lab, request_of):
    policy = chunked(budget=32, enable_chunked_prefill=False)
    run = lab(policy).play([request_of("long", 40, 2), request_of("short", 20, 2)])
    assert run.finishes["long"].status == "rejected"
    assert "42 tokens exceed the 33" in run.finishes["long"].reason
    assert run.finishes["short"].status == "ok"


def test_decodes_beyond_the_budget_rotate(lab, request_of, answer_of):
    """Case O1: six of ten tokens, four a step; each is resident soon and none waits long."""
    requests = [request_of(f"r{i}", 1, 10) for i in range(6)]
    run = lab(chunked(seqs=6, budget=4)).play(requests)
    assert max(row.executed for row in run.rows) == 4
    assert max(row.num_running for row in run.rows) == 6
    assert run.tokens() == {r.request_id: answer_of(r) for r in requests}
    for times in run.times().values():
        assert times[0] <= 3
        assert max(b - a for a, b in pairwise(times)) <= 3


def test_residents_within_the_budget_never_give_way_to_newcomers(lab, request_of):
    requests = [request_of(f"r{i}", 1, 10) for i in range(8)]
    run = lab(chunked(seqs=4, budget=4)).play(requests)
    assert len(run.times()) == 8
    for times in run.times().values():
        assert all(b - a == 1 for a, b in pairwise(times))


def test_a_budget_of_one_token_serves_one_after_another(lab, request_of):
    run = lab(chunked(seqs=3, budget=1)).play([request_of(f"r{i}", 1, 4) for i in range(3)])
    assert max(row.num_running for row in run.rows) == 1
    assert sorted(run.end_s().values()) == [4, 8, 12]


def test_a_readmission_that_hits_beyond_its_own_mark_adds_up(lab, request_of):
    """What others computed meanwhile is neither executed for it nor a first admission's hit."""
    sequence = Sequence(request_of("a", 12, 4), 4, 0)
    roster = Roster()
    roster.waiting.add_fresh(sequence)
    roster.admit("a", 0)
    sequence.num_computed = sequence.high_water = 4
    roster.preempt("a", "recompute", 1.0)
    roster.admit("a", 8)
    stats = sequence.stats(2.0)
    assert (stats.prefix_hit_tokens, stats.later_hit_tokens) == (0, 4)


def test_residents_beyond_the_budget_all_get_their_turn(lab, request_of):
    """A prompt in the middle too: nobody is passed over for longer than the policy declares."""
    prompts = [request_of(f"p{i}", 30, 5) for i in range(2)]
    decodes = [request_of(f"r{i}", 1, 60, scheduled_s=0.5 * i) for i in range(9)]
    passed_over, longest = {}, 0
    plan = ChunkedPolicy.plan

    class Counted(ChunkedPolicy):
        def plan(self, view, state):
            nonlocal longest
            made = plan(self, view, state)
            for sequence in view.running:
                name = sequence.request_id
                passed_over[name] = 0 if name in made[0].work else passed_over.get(name, 0) + 1
                longest = max(longest, passed_over[name])
            return made

    world = lab(Counted(7, 4), num_blocks=500)
    run = world.play(prompts + decodes)
    assert max(row.num_running for row in run.rows) == 7
    assert 1 <= longest <= -(-7 // 3)


def test_running_decode_gets_a_token_every_step_beside_long_prompts(lab, request_of):
    decode = request_of("d", 1, 100)
    prompts = [request_of(f"p{i}", 320, 2, scheduled_s=5.5) for i in range(5)]
    run = lab(chunked(budget=32)).play([decode, *prompts])
    times = run.times()["d"]
    assert all(b - a == 1 for a, b in pairwise(times))
    # 31 prompt tokens a step beside the decode: ceil(320 / 31) = 11 steps
    assert run.times()["p0"][0] == 6 + 11


def test_long_prefill_threshold_bounds_one_prompts_share(lab, request_of):
    policy = chunked(budget=64, long_prefill_token_threshold=8)
    run = lab(policy).play([request_of("a", 40, 1), request_of("b", 8, 1)])
    assert run.times()["a"] == [5.0]
    assert run.times()["b"] == [1.0]


def test_preempted_request_keeps_tokens(lab, request_of, answer_of):
    """Case N1: six blocks of 16, two requests of 16 + 48."""
    a, b = request_of("a", 16, 48), request_of("b", 16, 48)
    run = lab(chunked(), num_blocks=6, block_size=16).play([a, b])
    assert run.tokens() == {"a": answer_of(a), "b": answer_of(b)}
    assert run.finishes["a"].stats.num_preemptions == 0
    assert run.finishes["b"].stats.num_preemptions == 1
    assert sum(row.preemptions for row in run.rows) == 1
    assert sum(row.recomputed for row in run.rows) == 48
    assert sum(row.prompt + row.output for row in run.rows) == 2 * (16 + 48 - 1)
    assert run.finishes["b"].stats.max_stall_cause == "preemption"


def test_stall_beside_a_prompt_is_put_down_to_the_prompt(lab, request_of):
    cost = StepCost(per_step_s=0.01, per_token_s=0.01)
    run = lab(chunked(budget=64), cost=cost).play(
        [request_of("d", 1, 30), request_of("p", 50, 2, scheduled_s=0.1)]
    )
    assert run.finishes["d"].stats.max_stall_cause == "prefill"


def test_first_come_order_survives_preemption(lab, request_of):
    requests = [request_of(f"r{i}", 12, 12, scheduled_s=0.1 * i) for i in range(8)]
    run = lab(chunked(seqs=8, budget=32), num_blocks=9, block_size=4).play(requests)
    assert sum(row.preemptions for row in run.rows) > 0
    first = {name: times[0] for name, times in run.times().items()}
    assert list(first.values()) == sorted(first.values())
    last = list(run.end_s())
    assert last == [r.request_id for r in requests]


def test_block_is_taken_only_when_the_last_one_is_full(lab, request_of):
    """Case P1: growing 3 -> 4 needs no block of 4, 4 -> 5 needs one."""
    a, b = request_of("a", 3, 3), request_of("b", 3, 3)
    run = lab(chunked(), num_blocks=2, block_size=4).play([a, b])
    # each holds one block; b is preempted only when a's fifth position needs a second
    assert [row.preemptions for row in run.rows] == [0, 0, 1, 0]
    assert [row.decode_tokens for row in run.rows] == [0, 2, 1, 0]


@pytest.mark.parametrize("block_size", [1, 7, 16])
def test_pool_is_full_again_after_mixed_requests_with_preemption(lab, request_of, block_size):
    """Case P5."""
    requests = [request_of(f"r{i}", 1 + (i * 37) % 50, 1 + (i * 13) % 40) for i in range(200)]
    world = lab(
        chunked(seqs=16, budget=64), num_blocks=-(-200 // block_size), block_size=block_size
    )
    run = world.play(requests)
    assert sum(row.preemptions for row in run.rows) > 0
    assert len([f for f in run.finishes.values() if f.status == "ok"]) == 200
    assert world.cache.free_blocks == world.cache.num_blocks


def test_static_batch_computes_padding_for_rows_that_have_ended(lab, request_of):
    requests = [request_of(f"r{i}", 1, n) for i, n in enumerate((3, 10, 5, 2))]
    run = lab(StaticPolicy(4)).play(requests)
    assert len(run.rows) == 10
    assert sum(row.slots for row in run.rows) == 40
    assert sum(row.useful_rows for row in run.rows) == 20
    assert sum(row.padding for row in run.rows) == 20


def test_static_starts_a_partial_batch_when_the_source_is_blocked(lab, request_of, answer_of):
    requests = [request_of(f"r{i}", 4, 3 + i) for i in range(10)]
    run = lab(StaticPolicy(16)).play_closed(requests, concurrency=4)
    assert run.tokens() == {r.request_id: answer_of(r) for r in requests}


def test_static_waits_for_a_full_batch_without_a_timer(lab, request_of):
    requests = [request_of(f"r{i}", 4, 2, scheduled_s=100.0 * i) for i in range(3)]
    run = lab(StaticPolicy(2)).play(requests)
    assert run.times()["r0"][0] == 101.0
    assert run.times()["r2"][0] == 201.0


def test_window_gathers_until_its_oldest_request_has_waited_long_enough(lab, request_of):
    requests = [request_of(f"r{i}", 4, 2, scheduled_s=0.1 * i) for i in range(3)]
    requests.append(request_of("late", 4, 2, scheduled_s=50.0))
    run = lab(WindowPolicy(8, max_delay_s=0.15)).play(requests)
    assert run.rows[0].start_s == pytest.approx(0.15)
    assert run.rows[0].useful_rows == 2


def test_what_queued_while_a_window_batch_ran_goes_out_at_once_together(lab, request_of):
    """Case R1, and with a delay that would otherwise hold them back."""
    for delay_s in (0.0, 5.0):
        first = [request_of("a", 4, 4)]
        queued = [request_of(f"q{i}", 4, 2, scheduled_s=delay_s + 1.5) for i in range(3)]
        much_later = [request_of("z", 4, 1, scheduled_s=99.0)]
        run = lab(WindowPolicy(4, max_delay_s=delay_s)).play(first + queued + much_later)
        assert [row.useful_rows for row in run.rows] == [1, 1, 1, 1, 3, 3, 1]
        assert run.rows[4].start_s == run.rows[3].end_s


def test_a_window_opens_anew_after_an_idle_time(lab, request_of):
    requests = [request_of("a", 4, 2), request_of("late", 4, 2, scheduled_s=100.0)]
    requests.append(request_of("z", 4, 1, scheduled_s=500.0))
    run = lab(WindowPolicy(4, max_delay_s=5.0)).play(requests)
    assert [row.start_s for row in run.rows][2] == 105.0


def test_request_level_batches_shrink_to_what_the_memory_holds_whole(lab, request_of):
    requests = [request_of(f"r{i}", 8, 9) for i in range(4)]
    run = lab(StaticPolicy(4), num_blocks=8, block_size=4).play(requests)
    assert max(row.useful_rows for row in run.rows) == 2
    assert sum(row.preemptions for row in run.rows) == 0
    assert len(run.finishes) == 4


def test_a_stopped_loop_cancels_what_is_left_and_gives_memory_back(lab, request_of):
    world = lab(chunked())
    requests = [request_of("a", 4, 100)]
    inner = world.sink.emit

    def emit(events):
        inner(events)
        if len(world.sink.rows) == 5:
            world.loop.stop()

    world.sink.emit = emit
    run = world.play(requests)
    assert run.finishes["a"].status == "cancelled"
    assert len(run.tokens()["a"]) == 5
    assert world.cache.free_blocks == world.cache.num_blocks


def test_an_error_of_the_executor_fails_what_is_left_and_is_raised(lab, request_of):
    class Broken:
        def submit(self, batch):
            raise RuntimeError("out of memory")

    world = lab(chunked(), executor=Broken())
    with pytest.raises(RuntimeError, match="out of memory"):
        world.play([request_of("a", 4, 4)])
    assert world.sink.finishes["a"].status == "failed"
    assert "out of memory" in world.sink.finishes["a"].reason
    assert world.cache.free_blocks == world.cache.num_blocks
