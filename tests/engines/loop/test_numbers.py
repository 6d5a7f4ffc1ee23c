"""The published exercises on static against continuous batching, to the last digit."""

from __future__ import annotations

import random

import pytest

from engines.loop.policies.chunked import ChunkedPolicy
from engines.loop.policies.static import StaticPolicy

EIGHT = (5, 50, 8, 12, 40, 3, 30, 7)


def sixty_four():
    generator = random.Random(42)
    return [generator.randint(20, 400) for _ in range(64)]


class OneToken:
    """An executor that answers zeros: these exercises count steps."""

    def submit(self, batch):
        self._batch = batch
        return self

    def result(self):
        from engines.loop.executors.api import StepResult

        return StepResult(tokens=[[0] if row.sample else [] for row in self._batch.rows])

    def reset(self):
        pass

    def close(self):
        pass


def steps_and_slots(lab, request_of, policy, lengths, **more):
    requests = [request_of(f"r{i}", 1, n) for i, n in enumerate(lengths)]
    run = lab(policy, num_blocks=more.pop("num_blocks", 20_000), executor=OneToken(), **more).play(
        requests
    )
    assert all(f.status == "ok" for f in run.finishes.values())
    useful = sum(row.useful_rows for row in run.rows)
    return len(run.rows), useful / sum(row.slots for row in run.rows), run


def test_the_seeded_lengths_are_those_of_the_exercise():
    assert sum(sixty_four()) == 13042


def test_eight_requests_in_four_slots(lab, request_of):
    steps, slots, _ = steps_and_slots(lab, request_of, StaticPolicy(4), EIGHT)
    assert (steps, round(slots, 4)) == (90, 0.4306)
    steps, slots, _ = steps_and_slots(lab, request_of, ChunkedPolicy(4, 512), EIGHT)
    assert (steps, slots) == (50, 0.775)


def test_one_batch_of_four_is_half_useful(lab, request_of):
    steps, slots, run = steps_and_slots(lab, request_of, StaticPolicy(4), (3, 10, 5, 2))
    assert steps * 4 == 40
    assert sum(row.useful_rows for row in run.rows) == 20
    assert slots == 0.5


@pytest.mark.parametrize(
    ("slots", "static", "static_busy", "continuous", "continuous_busy"),
    [
        (4, 4973, 0.656, 3306, 0.986),
        (8, 2837, 0.575, 1804, 0.904),
        (16, 1555, 0.524, 979, 0.833),
        (32, 792, 0.515, 619, 0.658),
    ],
)
def test_sixty_four_seeded_lengths(
    lab, request_of, slots, static, static_busy, continuous, continuous_busy
):
    lengths = sixty_four()
    steps, busy, _ = steps_and_slots(lab, request_of, StaticPolicy(slots), lengths)
    assert (steps, round(busy, 3)) == (static, static_busy)
    steps, busy, _ = steps_and_slots(lab, request_of, ChunkedPolicy(slots, 512), lengths)
    assert (steps, round(busy, 3)) == (continuous, continuous_busy)


def test_a_token_limit_binds_only_where_the_exercise_says(lab, request_of):
    """Blocks of one token: 20 000 never preempt, 4 000 do from about 20 slots on."""

    def preemptions(slots, tokens):
        _, _, run = steps_and_slots(
            lab,
            request_of,
            ChunkedPolicy(slots, 512),
            sixty_four(),
            num_blocks=tokens,
            block_size=1,
        )
        peak = max(row.tokens_held for row in run.rows)
        return sum(row.preemptions for row in run.rows), peak

    assert preemptions(32, 20_000)[0] == 0
    assert preemptions(16, 4_000)[0] == 0
    assert preemptions(24, 4_000)[0] > 0
    # held positions: a request of n tokens has n - 1 of them and the one just fed
    assert preemptions(20, 20_000)[1] == 4313


def test_a_long_answer_wastes_a_static_batch(lab, request_of):
    lengths = [2000, *[20] * 31]
    _, _, run = steps_and_slots(lab, request_of, StaticPolicy(32), lengths)
    short_slots = 31 * len(run.rows)
    assert 1 - 31 * 20 / short_slots == pytest.approx(0.99, abs=0.001)
