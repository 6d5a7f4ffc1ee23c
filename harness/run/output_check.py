"""`--check-outputs`, after the last cell: sets answers against each other and asks the model.

The model runs in a worker of its own, with no engine, started only when answers differ and when
those that ran the engines have gone. What a difference means is `harness.outputs`' to say.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from engines.api import Request, RequestId
from engines.judging import Judgement, Question
from engines.registry import BuildContext
from harness.outputs.differences import find_differences
from harness.outputs.findings import EXACT_TYPES, OutputCheck, check_outputs, questions_for
from harness.places import without_places
from harness.records import CellRecord
from harness.records.reader import read_raw_cells
from harness.run.fleet import TICK_S
from harness.run.folder import RunFolder
from harness.run.interrupts import Interrupts
from harness.worker.process import WorkerProcess, wait_any
from harness.worker.protocol import Answer, Failed, Judge, Judged, Progress

_LABEL: Final = "check-outputs"


def check_run(
    folder: RunFolder,
    labels: Sequence[str],
    requests: Mapping[RequestId, Request],
    teacher: OutputTeacher,
) -> OutputCheck:
    """Of what a run has written. `labels` give the order: the first engine is the reference."""
    rank = {label: position for position, label in enumerate(labels)}
    cells = sorted(read_raw_cells(folder.path), key=lambda cell: rank[cell.key.engine])
    compared = find_differences(cells)
    questions = questions_for(compared.differences, requests)
    judgements, trouble = teacher.ask(questions) if questions else ({}, "")
    told = (cell for cell in cells if cell.key.engine not in compared.untold)
    return check_outputs(compared, requests, judgements, coarsest_type(told), trouble)


def coarsest_type(cells: Iterable[CellRecord]) -> str:
    """Of the models that gave the answers: one that does not compute in float32, if any."""
    models = (cell.info.model for cell in cells)
    types = ["unknown" if model is None else model.dtype for model in models]
    return next((name for name in types if name not in EXACT_TYPES), types[0] if types else "")


class OutputTeacher:
    """The model alone, in a process that lives as long as it is asked."""

    def __init__(
        self,
        context: BuildContext,
        folder: RunFolder,
        interrupts: Interrupts,
        note: Callable[[str], None],
    ) -> None:
        self._context = context
        self._folder = folder
        self._interrupts = interrupts
        self._note = note

    def ask(self, questions: Sequence[Question]) -> tuple[dict[Question, Judgement], str]:
        """Judgements by question, or none and the reason why."""
        if self._interrupts.received:
            return {}, "the run was interrupted"
        number = f"{len(questions)} difference{'s' if len(questions) > 1 else ''}"
        self._note(f"answers differ; asking the model alone about {number}")
        worker = WorkerProcess(_LABEL, self._folder.log(_LABEL), self._context.threads)
        try:
            worker.send(Judge(self._context, questions))
            answer = self._await(worker)
            worker.dismiss()
            worker.close()
        finally:
            worker.kill()
        if isinstance(answer, Judged):
            return dict(zip(questions, answer.judgements, strict=True)), ""
        error = answer.error if isinstance(answer, Failed) else repr(answer)
        context = self._context  # what it says goes into result files
        return {}, without_places(error.replace(context.model, context.model_name))

    def _await(self, worker: WorkerProcess) -> Answer:
        while not self._interrupts.received:
            for ready in wait_any([worker], TICK_S):
                message = ready.receive()
                if not isinstance(message, Progress):
                    return message
        worker.kill()
        return Failed("crash", "the run was interrupted")
