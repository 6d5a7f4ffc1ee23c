"""The clock of a request's phases. What its stalls are put down to is test_stalls.py's."""

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
    sequence.append([7], 8.0)  # five of prefill
    sequence.schedule(2, 9.0)
    sequence.append([7], 11.0)
    sequence.preempt(12.0, keeps_cache=False)  # four of decode
    sequence.schedule(3, 20.0)  # eight away
    sequence.append([7], 21.5)
    stats = sequence.stats(23.0)  # three more of decode
    assert (stats.queue_s, stats.prefill_s, stats.decode_s, stats.preempted_s) == (2, 5, 7, 8)
    assert (stats.num_steps, stats.num_preemptions) == (4, 1)


def test_who_is_preempted_before_a_token_goes_on_with_its_prompt(sequence):
    sequence.schedule(0, 1.0)
    sequence.preempt(2.0, keeps_cache=False)
    sequence.schedule(1, 5.0)
    sequence.append([7], 7.0)
    stats = sequence.stats(7.5)
    assert (stats.prefill_s, stats.preempted_s, stats.decode_s) == (1.0 + 2.0, 3.0, 0.5)


def test_a_request_that_never_ran_only_queued(sequence):
    stats = sequence.stats(6.0)
    assert (stats.queue_s, stats.prefill_s, stats.decode_s, stats.preempted_s) == (5, 0, 0, 0)
    assert stats.max_stall_cause is None


def test_steps_up_to_the_first_token_are_told_apart(sequence):
    assert sequence.stats(1.5).num_prefill_steps == 0
    sequence.schedule(0, 2.0)
    sequence.schedule(1, 3.0)
    assert sequence.stats(3.5).num_prefill_steps == 2
    sequence.append([7], 4.0)
    sequence.schedule(2, 4.0)
    stats = sequence.stats(5.0)
    assert (stats.num_prefill_steps, stats.num_steps) == (2, 3)


def test_each_preemption_has_its_two_ends(sequence):
    sequence.schedule(0, 1.0)
    sequence.preempt(2.0, keeps_cache=False)
    sequence.schedule(1, 5.0)
    sequence.append([7], 7.0)
    sequence.preempt(8.0, keeps_cache=True)
    stats = sequence.stats(9.5)
    assert (stats.preempted_from_s, stats.preempted_until_s) == ((2.0, 8.0), (5.0, 9.5))
    assert stats.preempted_s == (5.0 - 2.0) + (9.5 - 8.0)


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
