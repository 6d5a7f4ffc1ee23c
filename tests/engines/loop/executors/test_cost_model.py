"""A simulated step takes what the formula says: a + b x tokens + c x sequences."""

from __future__ import annotations

import pytest

from engines.api import GREEDY
from engines.clock import VirtualClock
from engines.loop.executors.api import Batch, PaddingRow, Row, SwapCopy
from engines.loop.executors.cost_model import CostModelExecutor, StepCost
from engines.loop.executors.hashing import HashingExecutor


def row(n: int, start: int = 0, lookahead: int = 0) -> Row:
    return Row("r", [1] * n, start, [0, 1, 2, 3], True, GREEDY, lookahead)


@pytest.mark.parametrize(
    ("batch", "tokens", "sequences"),
    [
        (Batch(0, []), 0, 0),
        (Batch(0, [row(5)]), 5, 1),
        (Batch(0, [row(5), row(1, 9)]), 6, 2),
        (Batch(0, [row(1)], padding=[PaddingRow(1, 40), PaddingRow(3, 0)]), 5, 3),
        (Batch(0, [row(1, 9, lookahead=3), row(1)]), 5, 2),
    ],
)
def test_every_computed_position_and_every_row_costs(batch, tokens, sequences):
    cost = StepCost(per_step_s=100.0, per_token_s=1.0, per_sequence_s=0.01)
    assert cost.seconds(batch) == pytest.approx(100.0 + tokens + sequences / 100)


def test_the_clock_moves_when_the_step_is_waited_for_and_tokens_are_the_inner_ones():
    clock = VirtualClock(5.0)
    inner, alone = HashingExecutor(8, 4), HashingExecutor(8, 4)
    executor = CostModelExecutor(clock, StepCost(0.5, 0.25), inner)
    handle = executor.submit(Batch(0, [row(6)]))
    result = handle.result()
    assert clock.now() == 5.0 + 0.5 + 6 * 0.25
    assert result.compute_s == 2.0
    assert result.tokens == alone.submit(Batch(0, [row(6)])).result().tokens


def test_a_copy_takes_its_bytes_over_the_bandwidth():
    """3 positions out and 5 in, of 100 bytes each, at 1 600 bytes a second: half a second."""
    clock = VirtualClock()
    inner = HashingExecutor(8, 4)
    inner.submit(Batch(0, [], swap_out=[SwapCopy("back", [1, 2], 5)]))
    cost = StepCost(1.0, kv_bytes_per_token=100, swap_bytes_per_s=1600.0)
    executor = CostModelExecutor(clock, cost, inner)
    batch = Batch(
        1, [row(1)], swap_out=[SwapCopy("out", [0], 3)], swap_in=[SwapCopy("back", [1, 2], 5)]
    )
    result = executor.submit(batch).result()
    assert (result.copy_s, result.compute_s, clock.now()) == (0.5, 1.0, 1.5)


def test_a_step_without_copies_takes_no_time_for_them():
    cost = StepCost(1.0, kv_bytes_per_token=100, swap_bytes_per_s=1600.0)
    assert cost.swap_seconds(Batch(0, [row(1)])) == 0.0
    copies = Batch(0, [row(1)], swap_out=[SwapCopy("out", [0], 3)])
    assert StepCost(1.0).swap_seconds(copies) == 0.0
