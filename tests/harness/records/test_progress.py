"""What a live view is told of a running cell, with steps and without."""

from __future__ import annotations

from engines.api import StepEvents
from harness.records import CellKey
from harness.records.progress import Progress

KEY = CellKey("e", "l", 1)


def test_an_engine_without_steps_is_counted_by_what_it_took_and_gave(player):
    names = [f"r{i}" for i in range(5)]
    progress = Progress(KEY, player.info(), [0.0] * 5)
    indices = {name: i for i, name in enumerate(names)}
    progress.taken = 4
    progress.add(player.tokens(1.0, {"r0": 1, "r1": 1}), indices)
    progress.add(player.end(1.0, "r0"), indices)
    progress.add(player.end(1.5, "r2", "rejected", "x"), indices)
    seen = progress.snapshot(2.0)
    assert (seen.running, seen.waiting, seen.done, seen.total) == (1, 1, 2, 5)
    assert (seen.counts["ok"], seen.counts["rejected"], seen.kv_used) == (1, 1, None)


def test_preemptions_add_up_over_steps(player):
    progress = Progress(KEY, player.info(), [])
    for number, preemptions in enumerate((2, 0, 1)):
        row = player.step(number, float(number), number + 1.0, preemptions=preemptions)
        progress.add(StepEvents(row.end_s, step=row), {})
    assert (progress.snapshot(3.0).preemptions, progress.snapshot(3.0).steps) == (3, 3)


def test_blocks_tell_the_use_of_a_pool_where_tokens_do_not(player):
    progress = Progress(KEY, player.info(), [])
    row = player.step(1, 0.0, 1.0, blocks_used=3, blocks_cached=1, blocks_free=8)
    progress.add(StepEvents(1.0, step=row), {})
    assert progress.snapshot(1.0).kv_used == 0.25
