"""What a row that has ended costs its batch."""

from __future__ import annotations

from engines.loop.executors.hashing import HashingExecutor
from engines.loop.policies.static import StaticPolicy


class Noting(HashingExecutor):
    """Keeps the padding of every step."""

    def __init__(self):
        super().__init__(1000, 16)
        self.padding = []

    def submit(self, batch):
        self.padding.append([(row.num_tokens, row.context) for row in batch.padding])
        return super().submit(batch)


def test_an_ended_row_attends_to_as_much_as_the_longest_that_lives(lab, request_of):
    """Rows of 3 + 4 and 9 + 2: the second ends after two steps with 10 positions behind it."""
    executor = Noting()
    lab(StaticPolicy(2), executor=executor).play([request_of("a", 3, 4), request_of("b", 9, 2)])
    assert executor.padding == [[], [], [(1, 4)], [(1, 5)]]


def test_all_memory_that_a_batch_will_need_is_taken_at_its_start(lab, request_of):
    rows = (
        lab(StaticPolicy(2), num_blocks=10, block_size=4)
        .play([request_of("a", 3, 6), request_of("b", 5, 5)])
        .rows
    )
    assert rows[0].blocks_used == 2 + 3  # 8 and 9 positions
