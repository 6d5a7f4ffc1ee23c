"""Records without a model: a player of given events, and real loops in virtual time.

Both write through a real recorder and are read back.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final, cast

import pytest

from engines.api import (
    EngineInfo,
    Finish,
    Request,
    RequestSource,
    RequestStats,
    Status,
    StepEvents,
    StepRow,
)
from engines.clock import VirtualClock
from engines.loop.build import make_policy, resolved_budget
from engines.loop.executors.cost_model import CostModelExecutor, StepCost
from engines.loop.executors.hashing import HashingExecutor
from engines.loop.kv.choose import make_cache, with_reserve
from engines.loop.loop import EngineLoop
from engines.loop.policies.registry import PolicyContext
from engines.registry import installed_engines, parse_engines
from harness.records import CellKey, CellRecord, CellRecorder, CellTrailer, read_cells
from harness.records.reader import read_raw_cell
from harness.records.source import RecordedSource
from harness.results.file import close_run
from workloads.loads import Load
from workloads.sources import ClosedLoopSource, make_source, sets_arrivals

TRAILER = CellTrailer(end_s=0.0, warmup_requests=1)
DEFAULT_COST = StepCost(per_step_s=0.01, per_token_s=0.001, per_sequence_s=0.002)
SCHEDULED: Final = Load("scheduled", 1.0)
Wrap = Callable[[RequestSource, VirtualClock], RequestSource]


class Player:
    """Makes requests, events and whole cells in `folder`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def request(
        self,
        name: str,
        *,
        at: float = 0.0,
        prompt: int = 2,
        out: int | None = 3,
        label: str = "",
        ignore_eos: bool = True,
    ) -> Request:
        return Request(
            request_id=name,
            prompt_token_ids=tuple(range(prompt)),
            max_tokens=out,
            scheduled_s=at,
            request_class=label,
            ignore_eos=ignore_eos,
        )

    def tokens(self, time_s: float, counts: Mapping[str, int]) -> StepEvents:
        """`counts[name]` tokens for each request at one instant."""
        ids = [tuple(range(100, 100 + n)) for n in counts.values()]
        return StepEvents(time_s, tuple(counts), tuple(ids))

    def end(
        self,
        time_s: float,
        name: str,
        status: Status = "ok",
        reason: str = "",
        stats: RequestStats | None = None,
    ) -> StepEvents:
        finish_reason = "length" if status == "ok" else None
        finish = Finish(name, status, finish_reason, reason, stats or RequestStats())
        return StepEvents(time_s, finished=(finish,))

    def answer(self, name: str, times_s: Sequence[float], stats: RequestStats | None = None):
        """One token at each time, then an ok end."""
        return [
            *(self.tokens(time_s, {name: 1}) for time_s in times_s),
            self.end(times_s[-1], name, stats=stats),
        ]

    def step(self, number: int, start_s: float, end_s: float, **values: int) -> StepRow:
        row = StepRow(
            step=number,
            start_s=start_s,
            end_s=end_s,
            compute_s=end_s - start_s,
            schedule_s=0.0,
            pack_s=0.0,
            copy_s=0.0,
            num_running=1,
            num_waiting=0,
            slots=4,
            useful_rows=1,
            prefill_tokens=0,
            decode_tokens=0,
            prompt=0,
            output=0,
        )
        return replace(row, **values)

    def info(
        self, name: str = "fake", settings: Mapping[str, object] | None = None, **values: int
    ) -> EngineInfo:
        base = EngineInfo(name=name, settings=settings or {}, max_model_len=4096, slots=4)
        return replace(base, **values)

    def record(
        self,
        requests: Sequence[Request],
        events: Sequence[StepEvents],
        *,
        engine: str = "fake",
        load: str = "load",
        number: int = 1,
        info: EngineInfo | None = None,
        trailer: CellTrailer | None = TRAILER,
        save_outputs: bool = False,
    ) -> None:
        """Plays one cell into the folder."""
        clock = VirtualClock()
        recorder = CellRecorder(
            self.folder,
            CellKey(engine, load, number),
            requests,
            spec=engine,
            info=info or self.info(),
            clock=clock,
            save_outputs=save_outputs,
        )
        for event in sorted(events, key=lambda event: event.time_s):
            clock.sleep_until(event.time_s)
            recorder.emit(event)
        recorder.close(trailer)

    def cell(
        self,
        requests: Sequence[Request],
        events: Sequence[StepEvents],
        trailer: CellTrailer | None = TRAILER,
    ) -> CellRecord:
        """Plays one cell and reads it back."""
        self.record(requests, events, trailer=trailer)
        (cell,) = read_cells(self.folder)
        return cell


class Simulate:
    """Runs `loop[...]` in virtual time, in a pool of the spec's `num_blocks`.

    Gives its cell back, which lies in `folder` too. `cost` has the method of `StepCost`. Requests
    come at their own times, or as `load` has them: at its rate they were drawn already.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(
        self,
        spec: str,
        requests: Sequence[Request],
        *,
        cost: StepCost = DEFAULT_COST,
        number: int = 1,
        wrap: Wrap = lambda source, _: source,
        stop_at: int | None = None,
        load: Load = SCHEDULED,
    ) -> CellRecord:
        (parsed,) = parse_engines(spec, installed_engines())
        clock, key = VirtualClock(), CellKey(parsed.label, "load", number)
        loop = self._build(parsed.settings, clock, cost)
        recorder = CellRecorder(
            self.folder, key, requests, spec=parsed.text, info=loop.describe(), clock=clock,
            closed_loop=sets_arrivals(requests, load),
        )  # fmt: skip
        source = make_source(requests, clock, load)

        class Sink:
            def emit(self, events: StepEvents) -> None:
                recorder.emit(events)
                if isinstance(source, ClosedLoopSource):
                    source.emit(events)
                if events.step is not None and events.step.step == stop_at:
                    loop.stop()

        loop.run(wrap(RecordedSource(source, recorder), clock), Sink(), clock)
        recorder.close(CellTrailer(clock.now(), interrupted=stop_at is not None))
        cell = read_raw_cell(self.folder / "raw" / key.file_name)
        assert cell is not None
        return cell

    def _build(self, given: Mapping[str, object], clock: VirtualClock, cost: StepCost):
        settings = with_reserve(given)
        num_blocks = cast(int, settings["num_blocks"])
        policy = make_policy(settings, PolicyContext("cpu", 4096))
        tokens = HashingExecutor(num_blocks, cast(int, settings["block_size"]))
        executor = CostModelExecutor(clock, cost, tokens)
        settings |= resolved_budget(policy)
        tokens_held = num_blocks * cast(int, settings["block_size"])
        info = EngineInfo("loop", settings, 4096, policy.limits.max_num_seqs, tokens_held)
        return EngineLoop(policy, make_cache(settings, num_blocks, 4096), executor, info)


@pytest.fixture
def simulate(tmp_path: Path) -> Simulate:
    return Simulate(tmp_path)


@pytest.fixture
def player(tmp_path: Path) -> Player:
    return Player(tmp_path)


SETTINGS = {
    "workload": {"name": "chat", "seed": 1, "hash": "abc123", "settings": {}, "clipped": {}},
    "loads": [{"name": "all-at-once", "request_rate": math.inf, "max_concurrency": None}],
    "model_info": {"name": "tiny", "device": "cpu", "dtype": "float32", "num_parameters": 10},
    "goodput": None,
}
ENVIRONMENT = {"cpu": "Test CPU", "cores_usable": 2}
MakeRun = Callable[..., Path]


@pytest.fixture
def make_run(tmp_path: Path) -> MakeRun:
    """Writes a whole run: of each engine the output tokens per second in each round.

    `None` for a round in which every request failed. Four requests of ten tokens each, all at
    once, evenly paced: a tenth of a cell's time is its TTFT.
    """

    def make(
        name: str,
        engines: Mapping[str, Sequence[float | None]],
        *,
        preemptions: Sequence[int | None] = (),
        load: str = "all-at-once",
        environment: Mapping[str, object] = ENVIRONMENT,
        info: Mapping[str, object] | None = None,
        trailer: CellTrailer | None = TRAILER,
        **settings: object,
    ) -> Path:
        player = Player(tmp_path / name)
        (player.folder / "raw").mkdir(parents=True)
        for label, rates in engines.items():
            for number, rate in enumerate(rates, 1):
                stats = RequestStats(
                    num_preemptions=preemptions[number - 1] if preemptions else None
                )
                requests = [player.request(f"r{i}", out=10) for i in range(4)]
                events = _paced(player, requests, rate, stats)
                told = player.info(label, info or {"rows": 4})
                player.record(
                    requests,
                    events,
                    engine=label,
                    load=load,
                    number=number,
                    info=told,
                    trailer=trailer,
                )
        order = {"engine_order": list(engines)}
        close_run(player.folder, {**SETTINGS, **order, **settings}, environment)
        return player.folder

    return make


def _paced(
    player: Player, requests: Sequence[Request], rate: float | None, stats: RequestStats
) -> list[StepEvents]:
    if rate is None:
        return [player.end(0.1, r.request_id, "failed", "connection refused") for r in requests]
    step_s = len(requests) / rate
    times = [step_s * (number + 1) for number in range(10)]
    return [event for r in requests for event in player.answer(r.request_id, times, stats)]
