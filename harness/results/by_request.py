"""Two engines compared request by request, on the same requests, where both ended ok.

Each request meets itself, so the mix of long and short ones takes no part in the comparison. The
requests of one cell are not independent of each other: they shared the machine's state and each
other's company. So a round gives one number, the median over its requests, and the interval is
that of rounds; a thousand requests in one round make none. It speaks of this workload's requests:
other requests are other seeds' matter.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

from harness.metrics.latency import e2e_s, tpot_s, ttft_s
from harness.records import CellRecord, RequestRecord

Measure = Callable[[RequestRecord], float | None]
MEASURES: Final[Mapping[str, Measure]] = {
    "ttft_s by request": ttft_s,
    "tpot_s by request": tpot_s,
    "e2e_s by request": e2e_s,
}


@dataclass(frozen=True, slots=True)
class PairedRequests:
    """`medians[i]` is round i's median of engine / baseline over requests; `None` without any."""

    medians: tuple[float | None, ...]
    number: int
    sooner: int
    left_out: int

    @property
    def note(self) -> str:
        """How many requests there are, and for how many the engine was the sooner one."""
        text = f"on {self.number} requests that were ok in both, {self.sooner} of them sooner"
        return text + (f", {self.left_out} others left out" if self.left_out else "")


def pair_requests(
    baseline: Sequence[CellRecord], engine: Sequence[CellRecord], measure: Measure
) -> PairedRequests:
    """The cells of the same rounds, in order. Where one has no such time the pair is left out."""
    per_round = [_log_ratios(a, b, measure) for a, b in zip(baseline, engine, strict=True)]
    logs = [log for round_logs in per_round for log in round_logs]
    offered = sum(len(cell.requests) for cell in baseline)
    return PairedRequests(
        medians=tuple(math.exp(median(of_round)) if of_round else None for of_round in per_round),
        number=len(logs),
        sooner=sum(log < 0 for log in logs),
        left_out=offered - len(logs),
    )


def _log_ratios(a: CellRecord, b: CellRecord, measure: Measure) -> list[float]:
    before, after = _ok_times(a.requests, measure), _ok_times(b.requests, measure)
    return [math.log(after[name] / before[name]) for name in before if name in after]


def _ok_times(requests: Iterable[RequestRecord], measure: Measure) -> dict[str, float]:
    """Positive times by request: a logarithm has no place for the 0 of a virtual clock."""
    times = ((r.request_id, measure(r)) for r in requests if r.status == "ok")
    return {name: time_s for name, time_s in times if time_s is not None and time_s > 0}
