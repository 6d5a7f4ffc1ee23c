"""How much of the memory each allocator uses, on lengths like those of people's chats.

Lengths: prompts lognormal with median 85 and sigma 1.25, answers lognormal with median 270 and
sigma 0.95, redrawn where both together exceed the context of 2 048 (as drawn: mean 186 and 368).
The pool is 16 384 positions, eight contexts, about what 13 billion parameters leave of 40 GB. All
200 requests wait from the start; the measured stretch begins when a quarter of them has ended and
ends when nobody waits. Time is a formula, so the figures are the same on every machine.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass

import pytest

from engines.api import EngineInfo, Request
from engines.loop.executors.api import StepResult
from engines.loop.executors.cost_model import StepCost
from engines.loop.kv.contiguous import RESERVES, ContiguousCache
from engines.loop.kv.paged import PagedCache
from engines.loop.policies.chunked import ChunkedPolicy
from harness.metrics.scheduler import kv_loss, kv_utilisation, residents
from harness.records.schema import CellKey, CellRecord, Defects

CONTEXT, BLOCK_SIZE, NUM_BLOCKS = 2048, 16, 1024


class Zeros:
    """Answers zeros."""

    def submit(self, batch):
        self._batch = batch
        return self

    def result(self):
        return StepResult(tokens=[[0] if row.sample else [] for row in self._batch.rows])


@dataclass(frozen=True)
class Use:
    """Time-weighted means of the measured stretch; losses as shares of the pool."""

    held_of_reserved: float
    residents: float
    inside_blocks: float
    reservation: float
    fragmentation: float


def chats():
    generator = random.Random(1)
    requests = []
    while len(requests) < 200:
        prompt = max(4, int(generator.lognormvariate(math.log(85), 1.25)))
        answer = max(4, int(generator.lognormvariate(math.log(270), 0.95)))
        if prompt + answer <= CONTEXT:
            requests.append(Request(f"r{len(requests)}", (1,) * prompt, answer))
    return requests


def use_of(lab, cache):
    world = lab(
        ChunkedPolicy(max_num_seqs=256, max_num_batched_tokens=512),
        cache=cache,
        executor=Zeros(),
        cost=StepCost(per_step_s=0.02, per_token_s=1e-4, per_sequence_s=2e-4),
        max_model_len=CONTEXT,
    )
    run = world.play(chats())
    assert {finish.status for finish in run.finishes.values()} == {"ok"}
    begin_s = sorted(run.end_s().values())[50]
    rows = tuple(row for row in run.rows if row.num_waiting and row.start_s >= begin_s)
    info = EngineInfo("loop", {}, CONTEXT, 256, kv_tokens=NUM_BLOCKS * BLOCK_SIZE)
    cell = CellRecord(CellKey("e", "l", 1), "e", info, (), rows, None, Defects(), rows[-1].end_s)
    loss = kv_loss(cell)
    return Use(
        held_of_reserved=kv_utilisation(rows).mean,
        residents=residents(rows).mean,
        inside_blocks=loss.inside_blocks,
        reservation=loss.reservation,
        fragmentation=loss.fragmentation,
    )


@pytest.fixture(scope="module")
def uses(lab):
    uses = {
        reserve: use_of(
            lab, ContiguousCache(NUM_BLOCKS, BLOCK_SIZE, reserve=reserve, max_model_len=CONTEXT)
        )
        for reserve in RESERVES
    }
    return uses | {"paged": use_of(lab, PagedCache(NUM_BLOCKS, BLOCK_SIZE))}


def test_the_lengths_are_those_that_are_stated():
    requests = chats()
    assert sum(len(request.prompt_token_ids) for request in requests) / 200 == pytest.approx(
        186, 0.01
    )
    assert sum(request.max_tokens for request in requests) / 200 == pytest.approx(368, 0.01)


def test_whole_contexts_are_reserved_and_mostly_not_used(uses):
    assert 0.20 <= uses["max"].held_of_reserved <= 0.40
    assert uses["max"].residents == pytest.approx(8, abs=0.1)
    assert uses["max"].reservation > 0.6
    assert uses["max"].fragmentation == 0, "all regions are alike, so none is cut too short"


def test_paged_memory_holds_tokens_nearly_everywhere(uses):
    assert uses["paged"].held_of_reserved > 0.96
    assert uses["paged"].inside_blocks < 0.03
    assert uses["paged"].reservation < 0.01
    assert uses["paged"].fragmentation == 0


def test_paged_memory_takes_two_to_four_times_as_many_in(uses):
    assert 2 <= uses["paged"].residents / uses["max"].residents <= 4


def test_the_better_a_length_is_known_the_less_is_reserved_in_vain(uses):
    order = [uses[name] for name in ("max", "pow2", "exact", "paged")]
    assert [u.held_of_reserved for u in order] == sorted(u.held_of_reserved for u in order)
    assert [u.residents for u in order] == sorted(u.residents for u in order)
    assert uses["exact"].held_of_reserved < 0.7, "an answer grows into its region bit by bit"


def test_regions_of_many_lengths_leave_gaps_that_help_nobody(uses):
    assert 0.05 < uses["pow2"].fragmentation < 0.3
    assert 0.05 < uses["exact"].fragmentation < 0.3
