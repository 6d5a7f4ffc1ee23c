"""A whole gain in parts: each from a pair of its own, of different causes, or not at all."""

from __future__ import annotations

from harness.results.pairs import Pair
from harness.show.report.split import split_text, whole_pairs

WHOLE = Pair("engines", "g", "c")
RUNTIME = Pair("runtime", "g", "s")
SCHEDULER = Pair("scheduler", "s", "m")
MEMORY = Pair("memory", "m", "c")


def split(whole, pairs, missing=()):
    """The sentences, with `B/A` for the ratio of a pair."""

    def find(pair):
        return None if pair in missing else f"{pair.engine}/{pair.baseline}"

    return split_text(whole, pairs, find, str, str)


def test_the_parts_are_told_in_order():
    assert split(WHOLE, [WHOLE, MEMORY, SCHEDULER, RUNTIME]) == (
        "Of this the runtime (s against g) is s/g, the scheduler (m against s) is m/s "
        "and the memory (c against m) is c/m."
    )


def test_each_way_has_its_sentence():
    direct = [Pair("memory", "s", "p"), Pair("scheduler", "p", "c")]
    told = split(WHOLE, [WHOLE, RUNTIME, SCHEDULER, MEMORY, *direct])
    assert told.count("Of this") == 2


def test_nothing_is_told_where_a_part_was_not_measured():
    assert split(WHOLE, [WHOLE, RUNTIME, SCHEDULER, MEMORY], missing=[SCHEDULER]) == ""


def test_one_cause_is_not_a_part_twice():
    again = Pair("scheduler", "c", "f")
    whole = Pair("engines", "s", "f")
    assert split(whole, [whole, SCHEDULER, MEMORY, again]) == ""
    assert whole_pairs([whole, SCHEDULER, MEMORY, again]) == []


def test_only_whole_pairs_are_taken_apart():
    assert whole_pairs([WHOLE, RUNTIME, SCHEDULER, MEMORY]) == [WHOLE]
    assert whole_pairs([WHOLE, RUNTIME, MEMORY]) == []


def test_what_a_part_also_differs_in_stands_beside_it():
    mixed = Pair("scheduler", "s", "c", ("max_num_seqs (4 and 8)",))
    told = split(WHOLE, [WHOLE, RUNTIME, mixed])
    assert told.endswith("is c/s, though they also differ in max_num_seqs (4 and 8).")
