"""Each request ends in exactly one state, whatever is sent twice, lost or claimed by two."""

from __future__ import annotations

import pytest

from engines.api import EngineInfo
from engines.clock import VirtualClock
from harness.locust_load.collector import LOST, Collector
from harness.locust_load.exchange import Answer
from harness.locust_load.messages import Report
from harness.locust_load.player import News, Row
from harness.records import CellKey, CellRecorder, CellTrailer, read_cells

RUN = "run"


def row(index: int, *, waited_s: float = 0.0, **answer) -> Row:
    facts = {"times_s": (1.0, 2.0), "counts": (1, 3), "counted_by": "usage", **answer}
    return Row(index, 0.5, waited_s, Answer(0.6, 2.0, "ok", "length", "", **facts))


def report(number: int, *rows: Row, arrivals=(), last: bool = False) -> Report:
    return Report(RUN, number, News(tuple(arrivals), rows), last=last)


@pytest.fixture
def collected(tmp_path, player):
    """A collector of two workers with two requests each, and what it wrote in the end."""

    class Collected:
        def __init__(self, closed_loop: bool = False) -> None:
            self.requests = [player.request(f"{i}", at=0.5, prompt=3, out=4) for i in range(4)]
            self.recorder = CellRecorder(
                tmp_path,
                CellKey("openai", "load", 1),
                self.requests,
                spec="openai",
                info=EngineInfo("openai", {}, 4096, 2),
                clock=VirtualClock(),
                closed_loop=closed_loop,
            )
            shares = {"a": [0, 2], "b": [1, 3]}
            self.collector = Collector(self.recorder, self.requests, shares)

        def record(self):
            self.recorder.close(CellTrailer(end_s=3.0, warmup_requests=1))
            (cell,) = read_cells(tmp_path)
            return cell

    return Collected


def test_rows_become_records_with_their_times_and_counts(collected):
    made = collected()
    assert made.collector.take("a", report(1, row(0, cached_tokens=2, prompt_tokens=7), row(2)))
    assert not made.collector.is_complete
    assert made.collector.take("b", report(1, row(1), row(3), last=True))
    assert made.collector.is_complete
    first = made.record().requests[0]
    assert (first.status, first.finish_reason) == ("ok", "length")
    assert (first.token_times_s, first.token_counts) == ((1.0, 2.0), (1, 3))
    assert (first.stats.sent_s, first.stats.prefix_hit_tokens) == (0.6, 2)
    assert (first.stats.served_prompt_tokens, first.stats.counted_by) == (7, "usage")


def test_a_report_that_comes_twice_counts_once(collected):
    made = collected()
    assert made.collector.take("a", report(1, row(0)))
    assert made.collector.take("a", report(1, row(0)))
    record = made.record()
    assert record.requests[0].output_tokens == 4
    assert record.defects.total == 0


def test_a_report_ahead_of_a_missing_one_has_to_come_again(collected):
    made = collected()
    assert not made.collector.take("a", report(2, row(2)))
    assert made.collector.take("a", report(1, row(0)))
    assert made.collector.take("a", report(2, row(2)))
    assert [r.status for r in made.record().requests] == ["ok", "cancelled", "ok", "cancelled"]


def test_two_workers_that_claim_one_request_are_not_hidden(collected):
    made = collected()
    made.collector.take("a", report(1, row(0)))
    made.collector.take("b", report(1, row(0)))
    assert made.record().defects.finished_twice == 1


def test_what_a_lost_worker_did_not_tell_has_failed(collected):
    made = collected()
    made.collector.take("a", report(1, row(0)))
    made.collector.take("b", report(1, row(1), row(3)))
    assert made.collector.owes("a")
    assert made.collector.lose("a", 2.5) == 1
    assert made.collector.is_complete
    assert not made.collector.owes("a")
    assert made.collector.take("a", report(2, row(2)))
    record = made.record()
    assert [r.status for r in record.requests] == ["ok", "ok", "failed", "ok"]
    assert record.requests[2].reason == LOST
    assert record.defects.total == 0
    assert made.collector.tally.late_rows == 1


def test_a_stranger_is_not_heard(collected):
    made = collected()
    assert not made.collector.take("c", report(1, row(0)))
    assert made.record().requests[0].status == "cancelled"


def test_closed_loops_arrive_when_they_were_handed_out(collected):
    made = collected(closed_loop=True)
    made.collector.take("a", report(1, arrivals=[(0, 0.75)]))
    record = made.record()
    assert [r.arrived for r in record.requests] == [True, False, False, False]
    assert record.requests[0].scheduled_s == 0.75


def test_waits_for_a_user_are_summed(collected):
    made = collected()
    made.collector.take("a", report(1, row(0, waited_s=2.0), row(2, waited_s=1.0)))
    made.collector.take("b", report(1, row(1, waited_s=0.0001)))
    assert (made.collector.tally.waits, made.collector.tally.longest_wait_s) == (2, 2.0)
    made.record()
