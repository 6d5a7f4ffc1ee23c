"""Simulated rounds of two engines, judged by the very code that judges real ones.

Draws requests' times with known noise and a known slow-down, makes records of them, and lets
`summarise_cell`, `compare_cells` and `decide` say what they say of a run. Shows that the share of
false alarms is the stated one and how often a planted slow-down is found; says nothing about how
noisy a machine is, which `harness.calibration.real` measures.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from engines.api import EngineInfo, RequestStats
from harness.looks import LOOK_CONFIDENCE
from harness.metrics import CellResult, Goodput, summarise_cell
from harness.records import CellKey, CellRecord, RequestRecord
from harness.records.schema import CellTrailer, Defects
from harness.results.comparisons import compare_cells
from harness.results.pairs import Pair
from harness.results.saturation import MAIN_SATURATED, widest_reach
from harness.results.values import Comparison
from harness.run.rounds import RoundPlan, decide, engine_order
from harness.statistics import CONFIDENCE

BASELINE: Final = "a"
ENGINE: Final = "b"
LOAD: Final = "all-at-once"
BY_REQUEST: Final = "e2e_s by request"
METRICS: Final = (MAIN_SATURATED, BY_REQUEST)
_PAIR: Final = Pair("engines", BASELINE, ENGINE)
_INFO: Final = EngineInfo("simulated", {}, max_model_len=4096, slots=8)
_REQUESTS: Final = 8
_OUTPUT_TOKENS: Final = 16
_MEAN_S: Final = 5.0
_SPREAD_OF_REQUESTS: Final = 0.5


@dataclass(frozen=True, slots=True)
class Noise:
    """Standard deviations of log times.

    `round_std` is shared by both engines of a round, `cell_std` is a cell's own. A drift goes on
    from cell to cell in the order of time and keeps the share `drift_keeps` each time. With
    `tails` a cell's own noise is a t of so many degrees of freedom, of the same `cell_std`.
    """

    name: str
    round_std: float = 0.05
    cell_std: float = 0.02
    request_std: float = 0.03
    drift_std: float = 0.0
    drift_keeps: float = 0.0
    tails: int | None = None


NOISES: Final = (
    Noise("log-normal"),
    Noise("drifting", drift_std=0.05, drift_keeps=0.9),
    Noise("heavy-tailed", tails=3),
)


@dataclass(frozen=True, slots=True)
class SimulatedRun:
    """`rounds[i]` holds round i + 1's two records and their results."""

    rounds: tuple[tuple[tuple[CellRecord, CellResult], ...], ...]

    def compared(self, rounds: int, confidence: float = CONFIDENCE) -> dict[str, Comparison]:
        """What is said of the first `rounds` rounds, by metric, on all requests together."""
        cells = [cell for of_round in self.rounds[:rounds] for cell in of_round]
        found = compare_cells(
            [record for record, _ in cells], [result for _, result in cells], [_PAIR], confidence
        )
        return {item.metric: item for item in found if item.request_class is None}

    def until_narrow(self, until_ci: float) -> tuple[int, dict[str, Comparison]]:
        """The round at which `--until-ci` ends, and what is said then."""
        plan = RoundPlan(until_ci=until_ci)
        for done in range(1, plan.limit + 1):
            if done in plan.looks or done == plan.limit:
                found = self.compared(done, LOOK_CONFIDENCE)
                reach = widest_reach([found[MAIN_SATURATED]])
                if not decide(plan, [1.0] * done, float(done), reach).goes_on:
                    return done, found
        raise AssertionError("rounds end at the limit")


def simulate_run(
    noise: Noise, rounds: int, rng: np.random.Generator, *, slower: float = 1.0
) -> SimulatedRun:
    """`slower` stretches the times of the second engine: 1.1 takes a tenth longer."""
    base_s = _MEAN_S * np.exp(rng.normal(0.0, _SPREAD_OF_REQUESTS, _REQUESTS))
    disturbed = _log_noise(noise, rng)
    seed = int(rng.integers(2**31))
    played = []
    for number in range(1, rounds + 1):
        order = engine_order((BASELINE, ENGINE), seed=seed, round_number=number, load_index=0)
        of_round = rng.normal(0.0, noise.round_std)
        cells = {}
        for label in order:
            own = rng.normal(0.0, noise.request_std, _REQUESTS)
            times_s = base_s * np.exp(of_round + next(disturbed) + own)
            stretched_s = times_s * (slower if label == ENGINE else 1.0)
            cells[label] = _cell(CellKey(label, LOAD, number), stretched_s.tolist())
        played.append((cells[BASELINE], cells[ENGINE]))
    return SimulatedRun(tuple(played))


def simulate_runs(
    noise: Noise, runs: int, rounds: int, *, seed: int, slower: float = 1.0
) -> Iterator[SimulatedRun]:
    """Independent runs, the same for a seed."""
    for number in range(runs):
        rng = np.random.default_rng([seed, number])
        yield simulate_run(noise, rounds, rng, slower=slower)


def is_separable(comparison: Comparison) -> bool:
    return comparison.answer in ("better", "worse")


def _log_noise(noise: Noise, rng: np.random.Generator) -> Iterator[float]:
    """The noise of one cell after the other."""
    drift = rng.normal(0.0, noise.drift_std)
    fresh_std = noise.drift_std * (1 - noise.drift_keeps**2) ** 0.5
    while True:
        yield drift + noise.cell_std * _unit(noise.tails, rng)
        drift = noise.drift_keeps * drift + rng.normal(0.0, fresh_std)


def _unit(tails: int | None, rng: np.random.Generator) -> float:
    """A draw of standard deviation 1."""
    if tails is None:
        return float(rng.normal())
    return float(rng.standard_t(tails) / (tails / (tails - 2)) ** 0.5)


def _cell(key: CellKey, times_s: Sequence[float]) -> tuple[CellRecord, CellResult]:
    requests = tuple(_request(number, time_s) for number, time_s in enumerate(times_s))
    record = CellRecord(
        key=key,
        spec=key.engine,
        info=_INFO,
        requests=requests,
        steps=(),
        trailer=CellTrailer(end_s=max(times_s), warmup_requests=1),
        defects=Defects(),
        end_s=max(times_s),
    )
    return record, summarise_cell(record, Goodput())


def _request(number: int, end_s: float) -> RequestRecord:
    """A first token after a tenth of its time, the rest in one piece at its end."""
    return RequestRecord(
        request_id=f"r{number}",
        label="",
        session=None,
        prompt_tokens=32,
        max_tokens=_OUTPUT_TOKENS,
        ignore_eos=True,
        scheduled_s=0.0,
        status="ok",
        finish_reason="length",
        reason="",
        stats=RequestStats(),
        token_times_s=(end_s / 10, end_s),
        token_counts=(1, _OUTPUT_TOKENS - 1),
    )
