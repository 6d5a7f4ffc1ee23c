"""One state machine for every policy, memory and way of preemption: submit, step, cancel, finish.

The numbers are those of the loop's invariants. The watcher checks at each decision that nobody is
preempted without an advance (2), order survives preemption (3), residents are within
`max_num_seqs` (4), what fits is not left idle (5, 9), nobody passes a better rank (6), nobody is
both preempted and scheduled (7), each preemption frees memory (8), counts are never negative (22),
prompts keep their length (23), decodes are served (24). The executor checks that positions are
covered by blocks of their own (19) and that the commit is the trial (25). A model that hashes what
it reads shows that only what was computed is ever read (11, 12, 20) and that delivered streams only
extend (14, 21). At the end what could never run was rejected and all else ended (1, 17), outputs
and ledger add up (15, 16), and the drained pool is full (17, 18). Tokens compared behind a hit (10)
and first admissions (13) have tests in `kv/`; rounding (26) needs a real model.
"""

from __future__ import annotations

import math

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from loop_watching import (
    MEMORIES,
    CheckedExecutor,
    Watcher,
    check_ledger,
    check_outcomes,
    could_run,
    memory_of,
    policies,
)

from engines.api import END, Request
from engines.loop.executors.cost_model import StepCost

CONTEXT = 40


class HandSource:
    """Requests as the machine submits them; nothing is known of the next one until the end."""

    def __init__(self, clock):
        self._clock = clock
        self.due = []
        self.leaving = []
        self.is_closed = False

    def take(self, now_s, limit):
        taken, self.due = self.due, []
        return taken

    def next_due(self):
        return END if self.is_closed else math.inf

    def cancelled(self):
        gone, self.leaving = tuple(self.leaving), []
        return gone

    def wait(self, until_s):
        """Time passes by the machine's own rule; at the end, as far as is asked."""
        if self.is_closed:
            self._clock.sleep_until(until_s)


def machine_of(lab, answer_of):
    class Loop(RuleBasedStateMachine):
        @initialize(
            policy=policies,
            memory=st.sampled_from(MEMORIES),
            block_size=st.sampled_from([1, 2, 3, 5, 16]),
            tokens=st.integers(16, 80),
        )
        def build(self, policy, memory, block_size, tokens):
            self.num_blocks = -(-tokens // block_size)
            self.memory, self.block_size, self.policy = memory, block_size, policy
            room = self.num_blocks * block_size
            self.context = min(CONTEXT, room) if memory == "max" else CONTEXT
            cache = memory_of(memory, self.num_blocks, block_size, self.context)
            self.watcher = Watcher(policy)
            self.executor = CheckedExecutor(self.num_blocks, block_size, self.watcher, cache)
            self.world = lab(
                self.watcher,
                cost=StepCost(0.1, 0.01, 0.001),
                executor=self.executor,
                cache=cache,
                max_model_len=self.context,
            )
            self.source = HandSource(self.world.clock)
            sink, clock = self.world.sink, self.world.clock
            self.serving = self.world.loop.begin(self.source, sink, clock)
            self.requests = {}
            self.left = {}
            self.rows_seen = 0

        @rule(
            prompt=st.integers(1, 24),
            answer=st.integers(1, 16),
            priority=st.integers(0, 2),
            text=st.integers(0, 1),
        )
        def submit(self, prompt, answer, priority, text):
            """Prompts are beginnings of two texts where prefixes are shared, else each its own."""
            name = f"r{len(self.requests)}"
            start = text if self.memory == "prefixes" else len(self.requests)
            request = Request(
                name,
                tuple((start * 7 + j) % 4096 for j in range(prompt)),
                answer,
                self.world.clock.now(),
                priority=priority,
                request_class=f"c{text}",
                session=f"s{priority}",
            )
            self.requests[name] = request
            self.source.due.append(request)

        @rule(turns=st.integers(1, 6))
        def step(self, turns):
            for _ in range(turns):
                self.serving.turn()

        @rule(seconds=st.sampled_from([0.1, 1.0, 6.0]))
        def let_time_pass(self, seconds):
            clock = self.world.clock
            clock.sleep_until(clock.now() + seconds)

        @precondition(lambda self: self.requests)
        @rule(index=st.integers(0, 40))
        def cancel(self, index):
            """Of one who waits, runs, lies on the host, has ended, or is not even taken yet."""
            names = list(self.requests)
            name = names[index % len(names)]
            if name not in {request.request_id for request in self.source.due}:
                self.source.leaving.append(name)
                self.left.setdefault(name, self.world.clock.now())

        @invariant()
        def streams_only_extend(self):
            if hasattr(self, "world"):
                for name, got in self.world.sink.tokens().items():
                    assert got == answer_of(self.requests[name])[: len(got)]

        @invariant()
        def memory_adds_up(self):
            if hasattr(self, "world"):
                for row in self.world.sink.rows[self.rows_seen :]:
                    assert row.blocks_used + row.blocks_free + row.blocks_cached == self.num_blocks
                self.rows_seen = len(self.world.sink.rows)

        def teardown(self):
            if not hasattr(self, "world"):
                return
            self.source.is_closed = True
            most = 50 + 40 * len(self.requests) * (1 + self.watcher.preemptions) + 40 * 40
            while self.serving.turn():
                most -= 1
                assert most > 0, "the loop does not come to an end"
            requests = list(self.requests.values())
            possible = {
                r.request_id
                for r in requests
                if could_run(
                    r, self.policy, self.memory, self.block_size, self.num_blocks, self.context
                )
            }
            run = self.world.sink
            check_outcomes(run, requests, possible, self.left, answer_of)
            check_ledger(run, requests, self.executor, self.watcher, self.num_blocks)
            assert self.world.cache.free_blocks == self.num_blocks
            assert self.world.cache.tables == {}

    return Loop


def test_the_loop_keeps_its_invariants_whatever_happens(lab, answer_of):
    run_state_machine_as_test(
        machine_of(lab, answer_of),
        settings=settings(max_examples=200, stateful_step_count=30, deadline=None),
    )
