"""All workers' rows into one raw file, each request in exactly one state at the end.

A worker's report counts once, however often it comes. What two workers both claim to have done is
not hidden: it goes into the file, where the verdict finds it. Computes no metric.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from engines.api import Finish, Request, RequestStats, StepEvents
from harness.locust_load.messages import Report
from harness.locust_load.player import Row
from harness.records import CellRecorder

LOST: Final = "the load worker that had this request was lost"
_WAIT_TOLD_ABOVE_S: Final = 0.001


@dataclass(slots=True)
class Tally:
    """What the rows say beside what a record keeps.

    `waits`: requests that were due while every user was busy. `late_rows`: of workers that had
    been given up.
    """

    waits: int = 0
    longest_wait_s: float = 0.0
    late_rows: int = 0
    gc_pauses: int = 0
    gc_pause_s: float = 0.0


class Collector:
    """`shares` has the indices that each worker was given; together they are all of `requests`.

    Raises `CbbenchError` when the disk takes no more.
    """

    def __init__(
        self,
        recorder: CellRecorder,
        requests: Sequence[Request],
        shares: Mapping[str, Sequence[int]],
    ) -> None:
        self._recorder = recorder
        self._requests = requests
        self._open = {worker: set(indices) for worker, indices in shares.items()}
        self._next = dict.fromkeys(shares, 1)
        self._silent: set[str] = set()
        self._lost: set[str] = set()
        self.tally = Tally()

    @property
    def is_complete(self) -> bool:
        """Whether every request has ended."""
        return not any(self._open.values())

    def owes(self, worker: str) -> bool:
        """Whether more can still come from a worker."""
        return worker in self._open and worker not in self._silent | self._lost

    def take(self, worker: str, report: Report) -> bool:
        """Whether to acknowledge it: all but a report that is ahead of a missing one."""
        if worker not in self._next or report.number > self._next[worker]:
            return False
        if report.number < self._next[worker]:
            return True
        self._next[worker] += 1
        if worker in self._lost:
            self.tally.late_rows += len(report.news.rows)
            return True
        self._note_arrivals(report)
        for row in report.news.rows:
            self._note_row(worker, row)
        self.tally.gc_pauses += report.gc_pauses
        self.tally.gc_pause_s += report.gc_pause_s
        if report.last:
            self._silent.add(worker)
        return True

    def lose(self, worker: str, now_s: float) -> int:
        """Gives a worker up: what it has not told has failed. Returns the number of requests."""
        self._lost.add(worker)
        left = sorted(self._open.pop(worker, ()))
        ends = [Finish(self._requests[i].request_id, "failed", reason=LOST) for i in left]
        if ends:
            self._recorder.emit(StepEvents(now_s, finished=ends))
        return len(left)

    def _note_arrivals(self, report: Report) -> None:
        arrivals = [
            replace(self._requests[index], scheduled_s=scheduled_s)
            for index, scheduled_s in report.news.arrivals
        ]
        if arrivals:
            self._recorder.rescheduled(arrivals)

    def _note_row(self, worker: str, row: Row) -> None:
        name = self._requests[row.index].request_id
        answer = row.answer
        for time_s, count in zip(answer.times_s, answer.counts, strict=True):
            self._recorder.emit(StepEvents(time_s, (name,), (range(count),)))
        stats = RequestStats(
            sent_s=answer.sent_s,
            prefix_hit_tokens=answer.cached_tokens,
            served_prompt_tokens=answer.prompt_tokens,
            counted_by=answer.counted_by,
        )
        end = Finish(name, answer.status, answer.finish_reason, answer.reason, stats)
        self._recorder.emit(StepEvents(answer.ended_s, finished=(end,)))
        self._open[worker].discard(row.index)
        self._count(row)

    def _count(self, row: Row) -> None:
        if row.waited_s > _WAIT_TOLD_ABOVE_S:
            self.tally.waits += 1
            self.tally.longest_wait_s = max(self.tally.longest_wait_s, row.waited_s)
