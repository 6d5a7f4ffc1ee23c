"""The clock of a request's phases, and what its longest stall is put down to."""

from __future__ import annotations

import pytest

from engines.api import Request
from engines.loop.sequence import Sequence


@pytest.fixture
def sequence() -> Sequence:
    return Sequence(Request("a", (1, 2, 3), 9, scheduled_s=1.0), 9, arrival_index=0)


def test_each_phase_gets_its_own_time(sequence):
    sequence.schedule(0, 3.0)  # two seconds in the queue
    sequence.schedule(1, 4.0)
    sequence.append([7], 8.0, "prefill")  # five of prefill
    sequence.schedule(2, 9.0)
    sequence.append([7], 11.0, "compute")
    sequence.preempt(12.0, keeps_cache=False)  # four of decode
    sequence.schedule(3, 20.0)  # eight away
    sequence.append([7], 21.5, "compute")
    stats = sequence.stats(23.0)  # three more of decode
    assert (stats.queue_s, stats.prefill_s, stats.decode_s, stats.preempted_s) == (2, 5, 7, 8)
    assert (stats.num_steps, stats.num_preemptions) == (4, 1)


def test_who_is_preempted_before_a_token_goes_on_with_its_prompt(sequence):
    sequence.schedule(0, 1.0)
    sequence.preempt(2.0, keeps_cache=False)
    sequence.schedule(1, 5.0)
    sequence.append([7], 7.0, "prefill")
    stats = sequence.stats(7.5)
    assert (stats.prefill_s, stats.preempted_s, stats.decode_s) == (1.0 + 2.0, 3.0, 0.5)


def test_a_request_that_never_ran_only_queued(sequence):
    stats = sequence.stats(6.0)
    assert (stats.queue_s, stats.prefill_s, stats.decode_s, stats.preempted_s) == (5, 0, 0, 0)
    assert stats.max_stall_cause is None


def test_the_cause_is_that_of_the_longest_gap(sequence):
    for time_s, cause in ((2.0, "prefill"), (3.0, "compute"), (9.0, "token_budget"), (11.0, "x")):
        sequence.append([7], time_s, cause)
    assert sequence.stats(11.0).max_stall_cause == "token_budget"


def test_a_preemption_is_the_cause_of_one_gap_only(sequence):
    sequence.append([7], 2.0, "prefill")
    sequence.preempt(2.5, keeps_cache=False)
    sequence.append([7], 4.0, "compute")
    assert sequence.stats(4.0).max_stall_cause == "preemption"
    sequence.append([7], 9.0, "prefill")
    assert sequence.stats(9.0).max_stall_cause == "prefill"


def test_who_was_preempted_may_be_so_again_only_once_it_has_advanced(sequence):
    sequence.high_water = sequence.num_computed = 3
    assert sequence.has_advanced
    sequence.preempt(2.0, keeps_cache=False)
    assert (sequence.num_computed, sequence.has_advanced) == (0, False)
    sequence.high_water = 4
    assert sequence.has_advanced


def test_who_goes_to_the_host_keeps_what_it_has_computed(sequence):
    sequence.high_water = sequence.num_computed = 3
    sequence.preempt(2.0, keeps_cache=True)
    assert sequence.num_computed == 3
