"""One `cbbench run`, from its options to its exit code.

Checks all that can be checked before a model loads, then runs the experiment, closes the folder
and only then prints. Orchestrates; every step is somebody else's.
"""

from __future__ import annotations

import shutil
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import Final, TextIO

from engines.api import CbbenchError, Clock, JsonValue
from engines.registry import installed_engines
from harness.config import RunConfig, RunOptions, read_options, settings_text
from harness.environment import describe_environment
from harness.experiment import Experiment
from harness.fleet import Fleet, Interrupted
from harness.interrupts import Interrupts
from harness.metrics import parse_goodput
from harness.progress import ProgressBoard
from harness.records.schema import RAW_FOLDER
from harness.run_file import RunFile, close_run, read_run
from harness.run_folder import RunFolder, claim, run_id
from harness.show.display import Display, open_display
from harness.show.report import comparison_text, finding
from workloads.workload import WorkloadConfig, open_workload

STDOUT: Final = "-"
OK, NOTHING_OK, SUSPECT = 0, 1, 3


def launch(options: RunOptions, clock: Clock, stdout: TextIO, stderr: TextIO) -> int:
    """Raises `CbbenchError` for every mistake; `clock` counts from the program's start."""
    config = read_options(options, installed_engines())
    warnings = parse_goodput(config.goodput).warnings
    opened = open_workload(config.workload, trace_format=config.trace_format)
    _check_json_file(config.json)
    folder = claim(config.out, run_id(config.workload, settings_text(config), datetime.now()))
    environment = describe_environment()
    with Interrupts() as interrupts, closing(open_display(stderr, clock)) as display:
        for warning in warnings:
            display.note(f"warning: {warning}")
        try:
            settings = _measure(config, opened, folder, display, interrupts, clock, environment)
        except (CbbenchError, Interrupted) as error:
            return _give_up(error, folder, interrupts, display)
        run = close_run(folder.path, settings, environment)
    _print(run, config, folder, interrupts, stdout, stderr)
    return exit_code(run, interrupts, strict=config.strict)


def _measure(
    config: RunConfig,
    opened: WorkloadConfig,
    folder: RunFolder,
    display: Display,
    interrupts: Interrupts,
    clock: Clock,
    environment: dict[str, JsonValue],
) -> dict[str, JsonValue]:
    labels = [spec.label for spec in config.engines]
    board = ProgressBoard(
        display, clock, workload=config.workload, model=config.context.model, labels=labels
    )
    fleet = Fleet(
        config.engines,
        config.context,
        folder,
        interrupts,
        tick=board.tick,
        progress=board.cell_goes_on,
    )
    with fleet:
        return Experiment(
            config, opened, folder, fleet, board, interrupts, clock, environment
        ).run()


def _give_up(error: Exception, folder: RunFolder, interrupts: Interrupts, display: Display) -> int:
    """Nothing measured: the folder is taken back. Something measured: it stays, and is named."""
    kept = any((folder.path / RAW_FOLDER).glob("*"))
    if not kept:
        folder.discard()
    if isinstance(error, Interrupted):
        display.note("interrupted before anything was measured; nothing is kept")
        return interrupts.exit_code
    where = f"; what was written is in {folder.path}" if kept else ""
    raise CbbenchError(f"{error}{where}") from error


def exit_code(run: RunFile, interrupts: Interrupts, *, strict: bool) -> int:
    """METRICS.md's: interrupted, nothing ok, suspect under `--strict`, or fine."""
    if interrupts.received:
        return interrupts.exit_code
    if not any(result.counts.ok for result in run.results):
        return NOTHING_OK
    suspect = any(r.verdict is not None and r.verdict.status == "SUSPECT" for r in run.results)
    return SUSPECT if strict and suspect else OK


def _print(
    run: RunFile,
    config: RunConfig,
    folder: RunFolder,
    interrupts: Interrupts,
    stdout: TextIO,
    stderr: TextIO,
) -> None:
    """The files are written by now, so that no trouble with a screen can cost a result."""
    text = run_json(folder.path)
    if config.json is not None and config.json != STDOUT:
        _write_json(Path(config.json), text)
    out = stderr if config.json == STDOUT else stdout
    if interrupts.received:
        out.write(
            f"interrupted: what was measured until then is in {folder.path}; "
            f"see it again with: cbbench report {folder.path}\n"
        )
    encoding = out.encoding or "utf-8"
    width = shutil.get_terminal_size().columns if out.isatty() else None
    out.write(f"\n{comparison_text(run, width, encoding)}\n\n{finding(run)}\n\n")
    out.write(f"report: {folder.path / 'report.md'}\nresults: {folder.path / 'run.json'}\n")
    if config.json == STDOUT:
        stdout.write(text)


def run_json(folder: Path) -> str:
    return (folder / "run.json").read_text(encoding="utf-8")


def _check_json_file(name: str | None) -> None:
    """Known before the run: whether its result can be written where it is wanted."""
    if name is None or name == STDOUT:
        return
    path = Path(name)
    if path.is_dir() or not path.parent.is_dir():
        raise CbbenchError(f"--json is {name!r}; expected a file in an existing folder, or -")


def _write_json(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise CbbenchError(f"--json: cannot write {path} ({error.strerror})") from error


def show_again(folder: Path, width: int | None, encoding: str) -> str:
    """The comparison of a run's folder, which is closed first when its run could not do it.

    Raises `CbbenchError` when the folder holds no run.
    """
    closed = (folder / "run.json").is_file()
    run = read_run(folder) if closed else close_run(folder)
    return f"{comparison_text(run, width, encoding)}\n\n{finding(run)}"
