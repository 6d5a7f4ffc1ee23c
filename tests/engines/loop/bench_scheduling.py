"""What a policy's decisions cost, without a model: run by hand, never a test.

    python tests/engines/loop/bench_scheduling.py [POLICY-SETTINGS ...]

Medians of the loop's own step times in CPU time of its thread, with an executor that does nothing.
Two cases for each row: no slot is free (steady), and a request ends in nearly every step (churn).
Figures past their limits are named, and the exit code is 1 then.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median

from engines.api import END, EngineInfo, Request, StepEvents, StepRow
from engines.loop.build import make_policy
from engines.loop.executors.api import Batch, StepResult
from engines.loop.kv.choose import make_cache, with_reserve
from engines.loop.loop import EngineLoop
from engines.loop.policies.registry import PolicyContext
from engines.registry import installed_engines, parse_engines

CONTEXT = 640  # 40 blocks of 16: with reserve=max too there is a region for each slot
PROMPT, ANSWER, STEPS = 32, 300, 400
SIZES = ((64, 1_000), (256, 1_000), (512, 1_000), (256, 10_000))
MOST_MS, MOST_CHUNKED_MS = 1.0, 0.4  # at 256 running and 1 000 waiting
MOST_FOR_TWICE_RUNNING, MOST_FOR_TEN_TIMES_WAITING = 2.3, 1.2
DEFAULT = "policy=chunked,max_num_batched_tokens=2048"
POLICIES = (
    "policy=chunked,max_num_batched_tokens=2048",
    "policy=chunked,max_num_batched_tokens=2048,order=priority",
    "policy=chunked,max_num_batched_tokens=2048,order=sjf",
    "policy=chunked,max_num_batched_tokens=2048,order=srpt",
    "policy=chunked,max_num_batched_tokens=2048,order=fair",
    "policy=chunked,max_num_batched_tokens=2048,admission=peak",
    "policy=chunked,max_num_batched_tokens=2048,allocator=contiguous",
    "policy=chunked,max_num_batched_tokens=2048,allocator=contiguous,reserve=exact",
    "policy=prefill-first",
    "policy=orca",
    "policy=static",
    "policy=window",
)


class ThreadClock:
    """CPU seconds of this thread: a busy neighbour does not count."""

    def now(self) -> float:
        return time.thread_time()

    def sleep_until(self, time_s: float) -> None:
        pass


class Nothing:
    """An executor that answers every row with the same token."""

    def submit(self, batch: Batch) -> Nothing:
        self._batch = batch
        return self

    def result(self) -> StepResult:
        tokens = [[1] if row.sample else [] for row in self._batch.rows]
        return StepResult(tokens=tokens, prepare_s=0.0, compute_s=0.0, copy_s=0.0)

    def drop(self, request_id: str) -> None:
        pass

    def reset(self) -> None:
        pass

    def close(self) -> None:
        pass


@dataclass
class AllAtOnce:
    requests: list[Request]

    def take(self, now_s: float, limit: int) -> list[Request]:
        taken, self.requests = self.requests, []
        return taken

    def next_due(self) -> object:
        return END

    def cancelled(self) -> tuple[str, ...]:
        return ()

    def wait(self, until_s: float) -> None:
        pass


@dataclass
class Rows:
    loop: EngineLoop
    rows: list[StepRow] = field(default_factory=list)

    def emit(self, events: StepEvents) -> None:
        if events.step is not None:
            self.rows.append(events.step)
            if len(self.rows) == STEPS:
                self.loop.stop()


def measure(settings: str, running: int, waiting: int, *, churn: bool) -> float:
    """Median scheduling time of a step in milliseconds, among steps with all slots taken."""
    text = f"loop[max_num_seqs={running},{settings}]"
    (spec,) = parse_engines(text, installed_engines())
    policy = make_policy(spec.settings, PolicyContext("cpu", CONTEXT))
    cache = make_cache(with_reserve(spec.settings), running * 40, CONTEXT)
    loop = EngineLoop(policy, cache, Nothing(), EngineInfo("loop", {}, CONTEXT, running))
    answers = [40 + i % ANSWER if churn else ANSWER for i in range(running + waiting)]
    requests = [
        Request(f"r{i}", tuple(range(PROMPT)), n, priority=i % 3, request_class=f"c{i % 4}")
        for i, n in enumerate(answers)
    ]
    sink = Rows(loop)
    loop.run(AllAtOnce(requests), sink, ThreadClock())
    full = [row for row in sink.rows[50:] if row.num_running >= 0.95 * running]
    return median(row.schedule_s for row in full) * 1e3


def past_limits(settings: str, cells: Sequence[float]) -> list[str]:
    """What is wrong with a row, in words; how cost grows is asked of chunked prefill in fcfs."""
    _, usual, twice_running, ten_times_waiting = cells
    most = MOST_CHUNKED_MS if settings == DEFAULT else MOST_MS
    wrong = [f"{usual:.3f} ms a step, expected at most {most:g}"] if usual > most else []
    if settings != DEFAULT:
        return wrong
    for what, cost, limit in (
        ("512 running", twice_running, MOST_FOR_TWICE_RUNNING),
        ("10 000 waiting", ten_times_waiting, MOST_FOR_TEN_TIMES_WAITING),
    ):
        if cost > limit * usual:
            wrong.append(
                f"{what} cost {cost / usual:.2f} times as much, expected {limit:g} at most"
            )
    return wrong


def main(policies: Sequence[str]) -> int:
    wrong = []
    print(f"{'schedule, ms a step (running/waiting)':60}", end="")
    print("".join(f"{f'{r}/{w}':>12}" for r, w in SIZES))
    for settings in policies:
        for churn in (False, True):
            cells = [measure(settings, *size, churn=churn) for size in SIZES]
            name = f"{settings} {'churn' if churn else 'steady'}"
            print(f"{name:60}" + "".join(f"{ms:12.3f}" for ms in cells), flush=True)
            wrong += [f"{name}: {what}" for what in past_limits(settings, cells)]
    print("\n".join(wrong) or "all within their limits")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or POLICIES))
