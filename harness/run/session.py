"""One run from its first worker to its last line: experiment, closed folder, printed comparison.

Orchestrates; every step is somebody else's. Nothing is printed before the files are written.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Final, TextIO

from engines.api import CbbenchError, Clock, JsonValue
from harness.environment import describe_environment
from harness.outputs.words import to_json as output_check_json
from harness.records import read_cells
from harness.records.schema import RAW_FOLDER
from harness.results.file import RunFile, close_run, read_run
from harness.run.config import STDOUT, RunConfig
from harness.run.experiment import Experiment
from harness.run.fleet import Fleet, Interrupted
from harness.run.folder import RunFolder
from harness.run.interrupts import Interrupts
from harness.run.output_check import OutputTeacher, check_run
from harness.run.progress import ProgressBoard
from harness.show.display import Display, open_display
from harness.show.report import comparison_text
from harness.trace import TRACE_FILE, write_trace
from workloads.workload import WorkloadConfig

OK: Final = 0
NOTHING_OK: Final = 1
UNEQUAL: Final = 1
SUSPECT: Final = 3


class Session:
    """A run whose options are sound and whose folder is ready."""

    def __init__(
        self,
        config: RunConfig,
        opened: WorkloadConfig,
        folder: RunFolder,
        interrupts: Interrupts,
        clock: Clock,
        stdout: TextIO,
        stderr: TextIO,
    ) -> None:
        self._config = config
        self._opened = opened
        self._folder = folder
        self._interrupts = interrupts
        self._clock = clock
        self._stdout = stdout
        self._stderr = stderr

    def run(self, warnings: Sequence[str] = ()) -> int:
        """The exit code. Raises `CbbenchError` for a mistake that only a worker could see."""
        environment = describe_environment()
        with closing(open_display(self._stderr, self._clock)) as display:
            for warning in warnings:
                display.note(f"warning: {warning}")
            try:
                settings = self._measure(display, environment)
            except (CbbenchError, Interrupted) as error:
                return self._give_up(error, display)
            run = close_run(self._folder.path, settings, environment)
            if self._config.save_trace:
                write_trace(self._folder.path / TRACE_FILE, read_cells(self._folder.path))
        self._print(run)
        return exit_code(run, self._interrupts, strict=self._config.strict)

    def _measure(self, display: Display, environment: dict[str, JsonValue]) -> dict[str, JsonValue]:
        config = self._config
        board = ProgressBoard(
            display,
            self._clock,
            workload=config.workload,
            model=config.context.model,
            labels=[spec.label for spec in config.engines],
        )
        fleet = Fleet(
            config.engines,
            config.context,
            self._folder,
            self._interrupts,
            tick=board.tick,
            progress=board.cell_goes_on,
        )
        with fleet:
            experiment = Experiment(
                config,
                self._opened,
                self._folder,
                fleet,
                board,
                self._interrupts,
                self._clock,
                environment,
            )
            settings = experiment.run()
        if config.check_outputs:
            settings["output_check"] = self._check_outputs(experiment, display)
        return settings

    def _check_outputs(self, experiment: Experiment, display: Display) -> JsonValue:
        """The engines' workers have gone by now, so that the model has the memory alone."""
        config = self._config
        teacher = OutputTeacher(config.context, self._folder, self._interrupts, display.note)
        labels = [spec.label for spec in config.engines]
        return output_check_json(check_run(self._folder, labels, experiment.requests, teacher))

    def _give_up(self, error: Exception, display: Display) -> int:
        """Nothing measured: the folder is taken back. Something measured: it stays, named."""
        path = self._folder.path
        kept = any((path / RAW_FOLDER).glob("*"))
        if not kept:
            self._folder.discard()
        if isinstance(error, Interrupted):
            display.note("interrupted before anything was measured; nothing is kept")
            return self._interrupts.exit_code
        where = f"; what was written stays readable: cbbench report {path}" if kept else ""
        raise CbbenchError(f"{error}{where}") from error

    def _print(self, run: RunFile) -> None:
        """The files are written by now, so that no trouble with a screen costs a result."""
        path, json = self._folder.path, self._config.json
        text = (path / "run.json").read_text(encoding="utf-8")
        if json is not None and json != STDOUT:
            _write_json(Path(json), text)
        out = self._stderr if json == STDOUT else self._stdout
        out.write(f"\n{comparison(run, out)}\n\n")
        if self._interrupts.received:
            out.write(
                f"interrupted: what was measured until then is in {path}; "
                f"see it again with: cbbench report {path}\n"
            )
        out.write(f"report: {path / 'report.md'}\nresults: {path / 'run.json'}\n")
        if self._config.save_trace:
            out.write(f"trace: {path / TRACE_FILE}\n")
        if json == STDOUT:
            self._stdout.write(text)


def comparison(run: RunFile, out: TextIO) -> str:
    """The comparison as `out` can show it: as wide as a terminal, in its characters."""
    width = shutil.get_terminal_size().columns if out.isatty() else None
    return comparison_text(run, width, out.encoding or "utf-8").strip()


def show_again(folder: Path, out: TextIO) -> str:
    """The comparison of a run's folder, which is closed first when its run could not do it.

    Raises `CbbenchError` when the folder holds no run.
    """
    closed = (folder / "run.json").is_file()
    return comparison(read_run(folder) if closed else close_run(folder), out)


def exit_code(run: RunFile, interrupts: Interrupts, *, strict: bool) -> int:
    """METRICS.md's: interrupted, nothing ok, unequal outputs, suspect under `--strict`, or fine.

    Outputs that were to be checked and could not be are as inconclusive as a SUSPECT result.
    """
    if interrupts.received:
        return interrupts.exit_code
    if not any(result.counts.ok for result in run.results):
        return NOTHING_OK
    outputs = (run.settings.get("output_check") or {}).get("status")
    if outputs == "different":
        return UNEQUAL
    if outputs in ("not judged", "nothing compared"):
        return SUSPECT
    suspect = any(r.verdict is not None and r.verdict.status == "SUSPECT" for r in run.results)
    return SUSPECT if strict and suspect else OK


def _write_json(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise CbbenchError(f"--json: cannot write {path} ({error.strerror})") from error
