"""A run's log, replayed on a virtual clock, gives the identical plans."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import fields, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engines.api import CbbenchError, EngineInfo, Request, StepEvents
from engines.clock import VirtualClock, WallClock
from engines.loop.build import build, make_policy
from engines.loop.executors.cost_model import CostModelExecutor, StepCost
from engines.loop.executors.hashing import HashingExecutor
from engines.loop.kv.choose import make_cache, with_reserve
from engines.loop.loop import EngineLoop
from engines.loop.plan import Plan
from engines.loop.plan_log import Turn
from engines.loop.policies.registry import PolicyContext
from engines.loop.replay import facts, replay
from engines.registry import BuildContext, installed_engines, parse_engines
from workloads.sources import QueueSource, ScheduledSource

CONTEXT = PolicyContext("cpu", 96)
SMALL = "num_blocks=12,block_size=4,max_num_seqs=5"
SPECS = [
    f"loop[policy=static,{SMALL}]",
    f"loop[policy=window,max_delay_ms=30,{SMALL}]",
    f"loop[policy=orca,{SMALL}]",
    f"loop[policy=prefill-first,{SMALL}]",
    f"loop[policy=chunked,max_num_batched_tokens=9,{SMALL}]",
    f"loop[policy=chunked,max_num_batched_tokens=3,{SMALL}]",
    f"loop[policy=chunked,max_num_batched_tokens=16,prefix_caching=true,{SMALL}]",
    f"loop[policy=chunked,max_num_batched_tokens=16,preemption=swap,order=srpt,{SMALL}]",
    f"loop[policy=chunked,max_num_batched_tokens=16,order=fair,admission=peak,{SMALL}]",
    f"loop[policy=orca,allocator=contiguous,reserve=pow2,{SMALL}]",
]


class Turns:
    """An observer that keeps everything."""

    def __init__(self) -> None:
        self.seen: list[Turn] = []

    def turn(self, turn: Turn) -> None:
        self.seen.append(turn)

    @property
    def plans(self) -> list[Plan]:
        return [turn.plan for turn in self.seen if turn.plan is not None]

    @property
    def preemptions(self) -> int:
        return sum(len(plan.preempt) for plan in self.plans)


class Ignored:
    def emit(self, events: StepEvents) -> None:
        pass


class Leaving(ScheduledSource):
    """Some clients leave; also one that never came."""

    def __init__(self, requests, leaves, clock) -> None:
        super().__init__(requests, clock)
        self._leaves, self._clock = dict(leaves), clock

    def cancelled(self):
        gone = [name for name, at_s in self._leaves.items() if at_s <= self._clock.now()]
        for name in gone:
            del self._leaves[name]
        return tuple(gone)


def settings_of(spec: str):
    (parsed,) = parse_engines(spec, installed_engines())
    return with_reserve(parsed.settings)


def play(
    spec: str,
    requests: Sequence[Request],
    leaves: dict[str, float] | None = None,
    stop_after: int | None = None,
) -> tuple[EngineInfo, Turns]:
    """A run in virtual time and what it told of itself."""
    chosen = settings_of(spec)
    clock, turns = VirtualClock(), Turns()
    policy = make_policy(chosen, CONTEXT)
    tokens = HashingExecutor(12, 4)
    executor = CostModelExecutor(clock, StepCost(0.01, 0.001, 0.002), tokens)
    info = EngineInfo("loop", chosen, max_model_len=96, slots=policy.limits.max_num_seqs)
    loop = EngineLoop(policy, make_cache(chosen, 12, 96), executor, info, turns)

    class Stopping:
        def emit(self, events: StepEvents) -> None:
            if events.step is not None and events.step.step == stop_after:
                loop.stop()

    source = Leaving(requests, leaves or {}, clock)
    loop.run(source, Stopping(), clock)
    return info, turns


def some_requests(request_of: Callable[..., Request]) -> list[Request]:
    """Enough of them to fill the small pool, one that never fits, one name twice."""
    made = [
        request_of(
            f"r{i}",
            1 + 7 * i % 19,
            2 + 5 * i % 11,
            scheduled_s=0.03 * i,
            priority=i % 3,
            request_class="ab"[i % 2],
        )
        for i in range(14)
    ]
    twin = request_of("twin", [*made[5].prompt_token_ids[:8], 9], 6, scheduled_s=0.4)
    return [
        *made,
        twin,
        request_of("too big", 60, 10, scheduled_s=0.2),
        request_of("r3", 5, 5, scheduled_s=0.1),
        request_of("late", 3, 3, scheduled_s=9.0),
    ]


@pytest.mark.parametrize("spec", SPECS)
def test_every_policy_plans_the_same_again(spec, request_of):
    leaves = {"r2": 0.15, "r7": 0.5, "nobody": 0.3, "late": 9.02}
    info, turns = play(spec, some_requests(request_of), leaves)
    again = replay(info, turns.seen)
    assert again.difference is None
    assert again.plans == len(turns.plans) > 20
    assert again.steps == sum(turn.result is not None for turn in turns.seen)


def test_the_runs_that_are_replayed_preempt_cancel_refuse_and_wait(request_of):
    _, chunked = play(SPECS[4], some_requests(request_of), {"r2": 0.15})
    assert chunked.preemptions > 0
    assert [turn.look.cancelled for turn in chunked.seen if turn.look.cancelled] == [("r2",)]
    assert "too big" in [r.request_id for turn in chunked.seen for r in turn.look.arrived]
    assert any(turn.plan is None for turn in chunked.seen)
    _, window = play(SPECS[1], some_requests(request_of))
    assert any(plan.wait_until is not None for plan in window.plans)


shapes = st.lists(
    st.tuples(st.integers(1, 30), st.integers(1, 20), st.floats(0, 2)), min_size=1, max_size=12
)


@settings(max_examples=60, deadline=None)
@given(
    spec=st.sampled_from(SPECS),
    shapes=shapes,
    leaves=st.dictionaries(st.integers(0, 11), st.floats(0, 3), max_size=4),
)
def test_any_run_can_be_planned_again(request_of, spec, shapes, leaves):
    requests = [
        request_of(f"r{i}", prompt, answer, scheduled_s=at_s)
        for i, (prompt, answer, at_s) in enumerate(shapes)
    ]
    info, turns = play(spec, requests, {f"r{i}": at_s for i, at_s in leaves.items()})
    again = replay(info, turns.seen)
    assert (again.difference, again.plans) == (None, len(turns.plans))


def test_a_comparison_of_plans_leaves_no_part_of_one_out():
    assert len(facts(Plan())) == len(fields(Plan))


@pytest.mark.parametrize("stop_after", [0, 7, 30])
def test_a_stopped_run_is_replayed_up_to_its_stop(request_of, stop_after):
    info, turns = play(SPECS[4], some_requests(request_of), stop_after=stop_after)
    again = replay(info, turns.seen)
    assert (again.difference, again.steps) == (None, stop_after + 1)


def test_a_log_that_was_cut_is_replayed_up_to_the_cut(request_of):
    info, turns = play(SPECS[1], some_requests(request_of))
    for length in (0, 1, 2, 5, len(turns.seen) - 1):
        cut = turns.seen[:length]
        again = replay(info, cut)
        assert (again.difference, again.plans) == (None, sum(t.plan is not None for t in cut))


def changed(turns: Turns, at: int, **values) -> list[Turn]:
    seen = list(turns.seen)
    seen[at] = replace(seen[at], **values)
    return seen


def test_the_first_plan_that_differs_is_named_with_both_plans(request_of):
    info, turns = play(SPECS[4], some_requests(request_of))
    at = next(i for i, t in enumerate(turns.seen) if t.plan and len(t.plan.work) > 2 and i > 9)
    right = turns.seen[at].plan
    assert right is not None
    wrong = replace(right, work=dict(reversed(right.work.items())))
    again = replay(info, changed(turns, at, plan=wrong))
    assert again.difference is not None
    assert (again.difference.logged, again.difference.planned) == (wrong, right)
    assert again.difference.time_s == turns.seen[at].look.now_s
    assert again.difference.step == again.steps
    assert again.plans == sum(t.plan is not None for t in turns.seen[:at])


def test_a_cancellation_that_is_left_out_is_noticed(request_of):
    info, turns = play(SPECS[4], some_requests(request_of), {"r2": 0.15})
    at = next(i for i, t in enumerate(turns.seen) if t.look.cancelled)
    look = replace(turns.seen[at].look, cancelled=())
    assert replay(info, changed(turns, at, look=look)).difference is not None


def test_an_instant_that_is_moved_is_noticed_where_a_policy_looks_at_the_clock(request_of):
    info, turns = play(SPECS[1], some_requests(request_of))
    at = next(i for i, t in enumerate(turns.seen) if t.plan and t.plan.wait_until is not None)
    look = replace(turns.seen[at].look, now_s=turns.seen[at].look.now_s + 1.0)
    seen = changed(turns, at, look=look)
    assert replay(info, seen).difference is not None


def test_what_the_source_said_of_its_next_request_is_played_back(request_of):
    """A static batch that began although it was not full knew that nobody would come."""
    info, turns = play(SPECS[0], [request_of("a", 3, 2)])
    assert len(turns.plans) == 2
    look = replace(turns.seen[0].look, next_due=5.0)
    difference = replay(info, changed(turns, 0, look=look)).difference
    assert difference is not None
    assert difference.planned is not None
    assert difference.planned.wait_until == float("inf")


def test_the_end_of_each_step_is_played_back(request_of):
    """Who arrived while a batch's last step ran goes out at once, and does not open a window."""
    requests = [request_of("a", 3, 1), request_of("b", 3, 1, scheduled_s=0.035)]
    info, turns = play(SPECS[1], requests)
    assert [plan.wait_until for plan in turns.plans] == [0.03, None, None]
    assert turns.seen[1].look.now_s < 0.035 < turns.seen[1].delivered_s
    assert replay(info, turns.seen).difference is None


def test_who_is_there_or_not_is_noticed_both_ways(request_of):
    info, turns = play(SPECS[4], [request_of("a", 3, 2)])
    unplanned = changed(turns, 1, plan=None, result=None)
    difference = replay(info, unplanned).difference
    assert difference is not None
    assert (difference.logged, difference.step) == (None, 1)
    look = replace(turns.seen[0].look, arrived=())
    difference = replay(info, changed(turns, 0, look=look)).difference
    assert difference is not None
    assert difference.planned is None


def test_other_settings_plan_otherwise(request_of):
    info, turns = play(SPECS[4], some_requests(request_of))
    other = replace(info, settings=dict(info.settings) | {"max_num_batched_tokens": 8})
    assert replay(other, turns.seen).difference is not None


def test_other_tokens_end_otherwise(request_of):
    request = request_of("a", 3, 9, stop_token_ids=(4096,))
    info, turns = play(SPECS[4], [request])
    result = turns.seen[3].result
    assert result is not None
    stopped = replay(info, changed(turns, 3, result=replace(result, tokens=[[4096]])))
    assert stopped.difference is not None
    assert stopped.steps == 4


def test_a_step_that_does_not_fit_its_plan_is_refused(request_of):
    info, turns = play(SPECS[4], [request_of("a", 3, 9)])
    result = turns.seen[3].result
    assert result is not None
    with pytest.raises(CbbenchError, match="tokens for 0 of 1 rows, its plan wants them for 1"):
        replay(info, changed(turns, 3, result=replace(result, tokens=[[]])))


@pytest.mark.parametrize(
    ("settings", "words"),
    [({"policy": "chunkd"}, "unknown policy 'chunkd'"), ({}, "has no setting 'policy'")],
)
def test_an_engine_that_cannot_be_built_again_is_named(settings, words):
    with pytest.raises(CbbenchError, match=words):
        replay(EngineInfo("loop", settings, 96, 4), [])


class Client:
    """Sends a few requests to a real loop from another thread, and leaves two of them."""

    def __init__(self, source: QueueSource, requests: Sequence[Request]) -> None:
        self._source, self._requests = source, requests
        self._counts: dict[str, int] = {}

    def emit(self, events: StepEvents) -> None:
        for name, ids in zip(events.request_ids, events.token_ids, strict=True):
            before = self._counts.get(name, 0)
            self._counts[name] = before + len(ids)
            if before < 3 <= self._counts[name] and name in ("r1", "r4"):
                self._source.cancel(name)

    def send(self) -> None:
        for request in self._requests:
            self._source.submit(request)
        self._source.close()


@pytest.mark.parametrize(
    "spec",
    [
        "loop[policy=static,max_num_seqs=4,num_blocks=32,block_size=3]",
        "loop[policy=window,max_num_seqs=3,max_delay_ms=5,num_blocks=32,block_size=3]",
        "loop[policy=orca,max_num_seqs=4,num_blocks=32,block_size=3]",
        "loop[policy=prefill-first,max_num_seqs=6,num_blocks=32,block_size=3]",
        "continuous[max_num_seqs=6,num_blocks=32,block_size=3]",
        "continuous[max_num_seqs=6,num_blocks=32,block_size=3,preemption=swap]",
        "continuous[max_num_seqs=6,num_blocks=40,block_size=3,prefix_caching=true]",
    ],
)
def test_a_real_run_is_planned_again_the_same(checkpoint, spec):
    """On torch, in real time, with a client in a thread of its own."""
    (parsed,) = parse_engines(spec, installed_engines())
    turns = Turns()
    context = BuildContext(
        str(checkpoint("llama")), "cpu", "float32", 1, kv_memory=2**20, observer=turns
    )
    engine = build(parsed.settings, context)
    clock = WallClock()
    source = QueueSource(clock)
    client = Client(source, real_requests())
    sender = threading.Thread(target=client.send)
    sender.start()
    engine.run(source, client, clock)
    sender.join()
    again = replay(engine.describe(), turns.seen)
    assert again.difference is None
    assert again.plans == len(turns.plans) > 20
    assert {name for turn in turns.seen for name in turn.look.cancelled} == {"r1", "r4"}
    if spec.startswith("continuous[max_num_seqs=6,num_blocks=32"):
        assert turns.preemptions > 0
    engine.close()


def real_requests() -> list[Request]:
    lengths = [2, 5, 17, 1, 33, 8, 12, 40, 3, 20, 26, 9]
    made = [
        Request(f"r{i}", tuple(3 + (i * 37 + 11 * j) % 120 for j in range(n)), 10 + (i * 7) % 30)
        for i, n in enumerate(lengths)
    ]
    twin = (*made[7].prompt_token_ids[:20], 5, 6, 7)
    return [*made, Request("twin", twin, 12), Request("too long", (3,) * 90, 60)]
