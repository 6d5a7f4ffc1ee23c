"""The workers of a run: all are built at the start, then one at a time runs a cell.

Knows interrupts and failures, and nothing of loads, rounds or displays. A worker that failed is
out for the rest of the run.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from engines.api import CbbenchError, EngineInfo
from engines.registry import BuildContext, EngineSpec
from harness.places import without_places
from harness.records.repair import record_death
from harness.run.folder import RunFolder
from harness.run.interrupts import Interrupts
from harness.worker.process import WorkerProcess, wait_any
from harness.worker.protocol import (
    Answer,
    Build,
    Built,
    CellDone,
    Encode,
    Encoded,
    Failed,
    Progress,
    RunCell,
    Stop,
)

TICK_S: Final = 0.25
STOP_WITHIN_S: Final = 10.0
Stage = Literal["load", "run"]


class Interrupted(Exception):
    """The user ended the run before anything was measured."""


@dataclass(frozen=True, slots=True)
class EngineFailure:
    """Why an engine is out: while its model was loaded, or in a cell."""

    engine: str
    stage: Stage
    error: str


class Fleet:
    """Enter to start the workers, leave to see them gone."""

    def __init__(
        self,
        specs: Sequence[EngineSpec],
        context: BuildContext,
        folder: RunFolder,
        interrupts: Interrupts,
        *,
        tick: Callable[[], None],
        progress: Callable[[Progress], None],
        stop_within_s: float = STOP_WITHIN_S,
    ) -> None:
        self._specs = specs
        self._context = context
        self._folder = folder
        self._interrupts = interrupts
        self._tick = tick
        self._progress = progress
        self._stop_within_s = stop_within_s
        self._workers: dict[str, WorkerProcess] = {}
        self.failures: dict[str, EngineFailure] = {}

    def __enter__(self) -> Fleet:
        try:
            for spec in self._specs:
                log = self._folder.log(spec.label)
                worker = WorkerProcess(spec.label, log, self._context.threads)
                self._workers[spec.label] = worker
        except BaseException:
            self._kill_all()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None and not self._interrupts.received:
            for worker in self._workers.values():
                worker.dismiss()
            for worker in self._workers.values():
                worker.close()
        self._kill_all()

    def build(self) -> dict[str, EngineInfo]:
        """Loads every engine, side by side; in the order given, without those in `failures`.

        Raises `CbbenchError` for an engine that cannot be built as it was asked for.
        """
        for spec in self._specs:
            self._workers[spec.label].send(Build(spec, self._context))
        answers = self._gather(list(self._workers))
        for label, answer in answers.items():
            if isinstance(answer, Failed) and answer.kind != "crash":
                raise CbbenchError(f"engine {label!r}: {answer.error}")
            if isinstance(answer, Failed):
                self._fail(label, "load", answer.error)
        stand = {label: answers[label] for label in self._workers}
        return {label: a.info for label, a in stand.items() if isinstance(a, Built)}

    def encode(self, texts: list[str], *, chat: bool) -> list[list[int]]:
        """Token ids from the first worker that stands."""
        label = next(label for label in self._workers if label not in self.failures)
        self._workers[label].send(Encode(texts, chat))
        answer = self._gather([label])[label]
        if not isinstance(answer, Encoded):
            raise CbbenchError(f"the prompts cannot be encoded: {_error_of(answer)}")
        return answer.token_ids

    def run_cell(self, command: RunCell) -> CellDone | EngineFailure:
        """Runs one cell to its end; an interrupt stops it within a bounded time.

        Raises `CbbenchError` when the run folder takes no more.
        """
        label = command.key.engine
        worker = self._workers[label]
        worker.send(command)
        answer = self._await_cell(worker, command)
        if isinstance(answer, CellDone):
            return answer
        error = _error_of(answer)
        if isinstance(answer, Failed) and answer.kind == "disk":
            raise CbbenchError(error)
        error = without_places(error)
        record_death(command.folder, command.key, error)
        return self._fail(label, "run", error)

    def _await_cell(self, worker: WorkerProcess, command: RunCell) -> Answer:
        deadline_s: float | None = None
        while True:
            answer = self._next_answer(worker)
            if answer is not None:
                return answer
            if self._interrupts.received and deadline_s is None:
                worker.send(Stop(command.key))
                deadline_s = time.monotonic() + self._stop_within_s
            if deadline_s is not None and time.monotonic() > deadline_s:
                worker.kill()
                return Failed("crash", f"it did not stop within {self._stop_within_s:g} s")

    def _next_answer(self, worker: WorkerProcess) -> Answer | None:
        """What the worker says within one tick, progress told on the way."""
        for ready in wait_any([worker], TICK_S):
            message = ready.receive()
            if not isinstance(message, Progress):
                return message
            self._progress(message)
        self._tick()
        return None

    def _gather(self, labels: Sequence[str]) -> dict[str, Answer]:
        """One answer of each, as they come. Raises `Interrupted`."""
        answers: dict[str, Answer] = {}
        while len(answers) < len(labels):
            pending = [self._workers[label] for label in labels if label not in answers]
            for worker in wait_any(pending, TICK_S):
                message = worker.receive()
                if not isinstance(message, Progress):
                    answers[worker.label] = message
            self._tick()
            if self._interrupts.received:
                raise Interrupted
        return answers

    def _fail(self, label: str, stage: Stage, error: str) -> EngineFailure:
        self._workers[label].kill()
        self.failures[label] = EngineFailure(label, stage, without_places(error))
        return self.failures[label]

    def _kill_all(self) -> None:
        for worker in self._workers.values():
            worker.kill()


def _error_of(answer: Answer) -> str:
    return answer.error if isinstance(answer, Failed) else f"unexpected answer {answer!r}"
