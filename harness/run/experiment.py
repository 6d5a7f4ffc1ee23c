"""Engines x loads x rounds: what is run, in which order, and what of it is written down.

Orchestrates only. Workers run the cells, `rounds` decides their order and number, `results.file`
writes the folder, a `ProgressBoard` shows it. Loads no model and computes no metric.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

from engines.api import CbbenchError, Clock, EngineInfo, JsonValue, Request, RequestId
from harness.metrics import Goodput, summarise_cell
from harness.records import CellKey
from harness.records.reader import read_raw_cell
from harness.records.schema import RAW_FOLDER
from harness.results.file import open_run, summarise_so_far
from harness.results.saturation import main_comparisons, widest_reach
from harness.run import settings as run_settings
from harness.run.config import RunConfig
from harness.run.fleet import EngineFailure, Fleet
from harness.run.folder import RunFolder
from harness.run.interrupts import Interrupts
from harness.run.progress import ProgressBoard
from harness.run.remarks import idle_rules
from harness.run.rounds import RoundPlan, decide, engine_order
from harness.worker.protocol import RunCell
from workloads.loads import AnyLoad, Load, RelativeLoad, loads_for
from workloads.workload import (
    ModelLimits,
    Workload,
    WorkloadConfig,
    at_load,
    draw,
    warmup_requests,
)

LATER_WARMUP_TOKENS: Final = 8


class Experiment:
    """One run on a fleet whose workers have started."""

    def __init__(
        self,
        config: RunConfig,
        opened: WorkloadConfig,
        folder: RunFolder,
        fleet: Fleet,
        board: ProgressBoard,
        interrupts: Interrupts,
        clock: Clock,
        environment: Mapping[str, JsonValue],
    ) -> None:
        self._config = config
        self._opened = opened
        self._folder = folder
        self._fleet = fleet
        self._board = board
        self._interrupts = interrupts
        self._clock = clock
        self._environment = environment
        self._infos: dict[str, EngineInfo] = {}
        self._loads: dict[str, Load] = {}
        self._best_req_s = 0.0
        self._rounds = 0
        self._reason = ""
        self._workload: Workload | None = None
        self._warmup: tuple[Request, ...] = ()
        self._warm: set[str] = set()

    def run(self) -> dict[str, JsonValue]:
        """Loads, draws and runs all rounds. Returns the run's settings, for `close_run`.

        An interrupt ends it early and in order. Raises `Interrupted` when it came before the
        first cell, `CbbenchError` for a mistake.
        """
        self._infos = self._fleet.build()
        for failure in self._fleet.failures.values():
            self._board.failed(failure.engine, failure.error)
        self._board.built(self._infos)
        if self._infos:
            self._draw()
            for remark in self._remarks():
                self._board.note(f"warning: {remark}")
            open_run(self._folder.path, self._settings(), self._environment)
            self._run_rounds()
        return self._settings()

    @property
    def requests(self) -> dict[RequestId, Request]:
        """What every engine was asked; empty when none could be built."""
        drawn = () if self._workload is None else self._workload.requests
        return {request.request_id: request for request in drawn}

    def _draw(self) -> None:
        config, limits = self._config, limits_of(self._infos)
        workload = draw(
            self._opened,
            seed=config.seed,
            limits=limits,
            num_prompts=config.num_prompts,
            input_len=config.input_len,
            output_len=config.output_len,
            range_ratio=config.range_ratio,
            burstiness=config.burstiness,
            trace_scale=config.trace_scale,
            encode=partial(self._fleet.encode, chat=not config.skip_chat_template),
        )
        warmup = warmup_requests(workload, config.num_warmups, limits)
        self._warmup = tuple(replace(r, ignore_eos=config.ignore_eos) for r in warmup)
        requests = tuple(replace(r, ignore_eos=config.ignore_eos) for r in workload.requests)
        self._workload = replace(workload, requests=requests)

    def _run_rounds(self) -> None:
        plan = RoundPlan(self._config.repeats, self._config.budget_s, self._config.until_ci)
        durations_s: list[float] = []
        while self._standing():
            reach = self._look(len(durations_s)) if len(durations_s) in plan.looks else math.inf
            decision = decide(plan, durations_s, self._clock.now(), reach)
            self._rounds, self._reason = len(durations_s), decision.reason
            if not decision.goes_on:
                return
            if self._interrupts.received:
                self._reason = f"interrupted after round {len(durations_s)}"
                return
            started_s = self._clock.now()
            longest_s = max(durations_s, default=None)
            self._board.round_begins(len(durations_s) + 1, decision.expected, longest_s)
            self._run_round(len(durations_s) + 1)
            if self._interrupts.received:
                self._reason = f"interrupted in round {len(durations_s) + 1}"
                return
            durations_s.append(self._clock.now() - started_s)
            self._rounds = len(durations_s)
            open_run(self._folder.path, self._settings(), self._environment)
        self._rounds, self._reason = len(durations_s), "no engine was left"

    def _look(self, rounds: int) -> float:
        """How far the widest interval of the main ratios reaches, of the engines that stand."""
        run = summarise_so_far(self._folder.path, self._settings())
        reach = widest_reach(main_comparisons(run, self._standing()))
        told = "there is no interval" if reach == math.inf else f"intervals reach {reach:.1%}"
        self._board.note(
            f"look after {rounds} rounds: {told}, asked for {self._config.until_ci:.1%}"
        )
        return reach

    def _run_round(self, number: int) -> None:
        for index, wanted in enumerate(self._wanted_loads()):
            load = self._resolve(wanted)
            if load is None:
                continue
            self._board.load_begins(load.name)
            requests = at_load(self._drawn, load)
            order = engine_order(
                list(self._infos),
                seed=self._config.seed,
                round_number=number,
                load_index=index,
                shuffled=self._config.shuffled,
            )
            for label in order:
                if self._interrupts.received:
                    return
                if label not in self._fleet.failures:
                    self._run_cell(CellKey(label, load.name, number), load, requests)

    def _run_cell(self, key: CellKey, load: Load, requests: tuple[Request, ...]) -> None:
        self._board.cell_begins(key.engine)
        outcome = self._fleet.run_cell(
            RunCell(
                key=key,
                requests=requests,
                load=load,
                warmup=self._warmup_of(key.engine),
                folder=self._folder.path,
                save_outputs=self._config.save_outputs or self._config.check_outputs,
                save_plans=self._config.save_plans,
            )
        )
        if isinstance(outcome, EngineFailure):
            self._board.failed(key.engine, outcome.error)
            return
        self._board.cell_ended(outcome)
        if key.round == 1 and load.request_rate == math.inf:
            throughput = request_throughput(self._folder.path, key)
            self._best_req_s = max(self._best_req_s, throughput)

    def _warmup_of(self, label: str) -> tuple[Request, ...]:
        """Whole requests before an engine's first cell; later ones find it warm, and cost less."""
        if label not in self._warm:
            self._warm.add(label)
            return self._warmup
        return tuple(
            replace(r, max_tokens=min(r.max_tokens or LATER_WARMUP_TOKENS, LATER_WARMUP_TOKENS))
            for r in self._warmup
        )

    def _resolve(self, wanted: AnyLoad) -> Load | None:
        """A relative load gets its rate once, from round 1, the same for all engines."""
        known = self._loads.get(wanted.name)
        if known is not None:
            return known
        if isinstance(wanted, RelativeLoad):
            if not self._best_req_s > 0:
                self._board.note(f"{wanted.name} is left out: no engine finished a request before")
                return None
            wanted = wanted.resolve(self._best_req_s)
        self._loads[wanted.name] = wanted
        open_run(self._folder.path, self._settings(), self._environment)
        return wanted

    def _wanted_loads(self) -> tuple[AnyLoad, ...]:
        rate = self._config.request_rate
        rates = () if rate is None else (rate,)
        return loads_for(self._drawn, rates, self._config.max_concurrency)

    def _standing(self) -> list[str]:
        return [label for label in self._infos if label not in self._fleet.failures]

    @property
    def _drawn(self) -> Workload:
        assert self._workload is not None
        return self._workload

    def _remarks(self) -> list[str]:
        return idle_rules(self._infos, self._drawn)

    def _settings(self) -> dict[str, JsonValue]:
        failures = list(self._fleet.failures.values())
        settings = run_settings.describe_request(self._config)
        settings["engines"] = run_settings.describe_engines(self._config.engines, self._infos)
        settings["model_info"] = run_settings.describe_model(self._infos)
        settings["loads"] = run_settings.describe_loads(self._loads.values())
        settings["later_warmup_tokens"] = LATER_WARMUP_TOKENS
        settings["rounds"] = self._rounds
        settings["rounds_reason"] = self._reason
        settings["engine_order"] = [spec.label for spec in self._config.engines]
        settings["engine_errors"] = {f.engine: f.error for f in failures if f.stage == "load"}
        settings["failures"] = run_settings.describe_failures(failures)
        if self._workload is not None:
            settings["workload"] = run_settings.describe_workload(self._workload)
            settings["remarks"] = self._remarks()
        return settings


def limits_of(infos: Mapping[str, EngineInfo]) -> ModelLimits:
    """What every engine can take: one vocabulary, and the shortest context of all.

    Where no engine has its model at hand, as with servers elsewhere, the smallest vocabulary that
    one of them is said to take. Raises `CbbenchError` when no engine tells its model, or two tell
    different vocabularies.
    """
    models = {label: info.model for label, info in infos.items() if info.model is not None}
    sizes = {model.vocab_size for model in models.values()}
    if len(sizes) > 1:
        raise CbbenchError(f"the engines run models with vocabularies of {sorted(sizes)} tokens")
    context = min(info.max_model_len for info in infos.values())
    known = [ModelLimits.of(model) for model in models.values()][:1]
    told = [info.prompts for info in infos.values() if info.prompts is not None]
    known += [ModelLimits(p.vocab_size, context, p.special_token_ids) for p in told]
    if not known:
        raise CbbenchError("no engine says which model it runs, so no prompts can be drawn for it")
    smallest = min(known, key=lambda limits: limits.vocab_size)
    return replace(smallest, max_model_len=context)


def request_throughput(folder: Path, key: CellKey) -> float:
    """Of a cell that has just ended, from its raw file; 0 when nothing was ok."""
    record = read_raw_cell(folder / RAW_FOLDER / key.file_name)
    rate = summarise_cell(record, Goodput()).request_throughput_req_s if record else None
    return rate or 0.0
