"""Moves between waiting, running and the host, and what a request remembers of them."""

from __future__ import annotations

from engines.loop.roster import Roster


def names(sequences):
    return [sequence.request_id for sequence in sequences]


def test_only_the_first_admission_counts_as_a_hit(request_of):
    roster = Roster()
    roster.submit(request_of("a", 9, 4), 4)
    roster.admit("a", 4)
    sequence = roster.find("a")
    assert (sequence.num_computed, sequence.prefix_hit_tokens) == (4, 4)
    sequence.high_water = sequence.num_computed = 6
    roster.preempt("a", "recompute", 1.0)
    roster.admit("a", 0)
    assert (sequence.num_computed, sequence.prefix_hit_tokens) == (0, 4)
    assert sequence.stats(2.0).prefix_hit_tokens == 4


def test_order_of_arrival_holds_in_every_place(request_of):
    roster = Roster()
    for name in "abcd":
        roster.submit(request_of(name, 4, 4), 4)
    for name in "cab":
        roster.admit(name, 0)
        roster.find(name).high_water = 1
    assert names(roster.running.in_order) == ["a", "b", "c"]
    roster.preempt("c", "recompute", 1.0)
    roster.preempt("a", "recompute", 1.0)
    assert names(roster.waiting) == ["a", "c", "d"]
    roster.preempt("b", "swap", 1.0)
    assert names(roster.swapped.in_order) == ["b"]
    roster.admit("c", 0)
    roster.resume("b")
    assert names(roster.running.in_order) == ["b", "c"]


def test_first_in_line_is_who_arrived_first_of_those_without_memory(request_of):
    roster = Roster()
    assert roster.first_in_line is None
    for name in "abc":
        roster.submit(request_of(name, 4, 4), 4)
    assert roster.first_in_line.request_id == "a"
    for name in "ab":
        roster.admit(name, 0)
    assert roster.first_in_line.request_id == "c"
    roster.preempt("b", "swap", 1.0)
    assert roster.first_in_line.request_id == "b"
    roster.preempt("a", "recompute", 1.0)
    assert roster.first_in_line.request_id == "a"
    roster.admit("a", 0)
    roster.admit("c", 0)
    assert roster.first_in_line.request_id == "b"


def test_positions_that_go_to_the_host_and_come_back_are_both_counted(request_of):
    roster = Roster()
    roster.submit(request_of("a", 9, 4), 4)
    roster.admit("a", 0)
    sequence = roster.find("a")
    for computed, mode in ((5, "swap"), (7, "swap"), (8, "recompute")):
        sequence.num_computed = sequence.high_water = computed
        roster.preempt("a", mode, 1.0)
        if mode == "swap":
            roster.resume("a")
    assert sequence.stats(2.0).swapped_tokens == 2 * 5 + 2 * 7
    roster.admit("a", 0)
    sequence.num_computed = sequence.high_water = 9
    roster.preempt("a", "swap", 3.0)
    assert sequence.stats(4.0).swapped_tokens == 24 + 9  # it never came back


def test_a_request_that_was_never_admitted_has_no_hits_to_count(request_of):
    roster = Roster()
    roster.submit(request_of("a", 9, 4), 4)
    assert roster.find("a").stats(1.0).prefix_hit_tokens is None


def test_a_request_is_found_wherever_it_is_and_removed_from_there(request_of):
    roster = Roster()
    for name in "abc":
        roster.submit(request_of(name, 4, 4), 4)
    roster.admit("a", 0)
    roster.admit("b", 0)
    roster.preempt("b", "swap", 1.0)
    places = {name: roster.remove(roster.find(name)) for name in "abc"}
    assert places == {"a": "running", "b": "swapped", "c": "waiting"}
    assert len(roster) == 0
    assert roster.find("a") is None
