"""Runs an engine against itself, again and again, into one folder; continues what was cut off.

Orchestrates only. Each run is a `cbbench run` of its own with fresh processes and its own seed, so
that what differs from process to process and from order to order is in the false alarms too.
"""

from __future__ import annotations

import io
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, TextIO

from engines.api import CbbenchError
from engines.clock import WallClock
from engines.registry import installed_engines
from harness.calibration.real import AARun, aa_run, calibrate
from harness.calibration.text import calibration_lines
from harness.places import without_folders
from harness.results.file import read_run
from harness.results.values import RunFile
from harness.run.config import RunConfig, RunOptions, read_options
from harness.run.launch import launch
from harness.run.session import NOTHING_OK
from harness.run.settings import describe_request
from harness.show.report.finding import ratio_text

OK: Final = 0
TOO_MANY_ALARMS: Final = 1


@dataclass(frozen=True, slots=True)
class CalibrationPlan:
    """`options` of each run but for its engines, seed and folder."""

    engine: str
    runs: int
    folder: Path
    options: RunOptions

    def run_folder(self, number: int) -> Path:
        return self.folder / f"run-{number:03}"

    def options_of(self, number: int) -> RunOptions:
        """A plain spec stands on both sides."""
        return replace(
            self.options,
            engines=f"a={self.engine},b={self.engine}",
            seed=str(number),
            out=str(self.run_folder(number)),
        )


def run_calibration(plan: CalibrationPlan, stdout: TextIO, stderr: TextIO) -> int:
    """The exit code: 1 when more runs are called separable than chance explains, 130 interrupted.

    Raises `CbbenchError` for a mistake, and for a folder with runs of other settings.
    """
    done = _finished(plan)
    number = 0
    while len(done) < plan.runs:
        number += 1
        folder = plan.run_folder(number)
        if folder.exists():
            continue
        code = launch(plan.options_of(number), WallClock(), io.StringIO(), stderr)
        if code > NOTHING_OK:
            stderr.write("interrupted; the same command goes on where it was cut off\n")
            return code
        done.append(_usable(read_run(folder), folder))
        compared = done[-1].compared
        stdout.write(f"run {len(done)} of {plan.runs}: {ratio_text(compared)}, {compared.answer}\n")
        stdout.flush()
    found = calibrate(done)
    stdout.write("\n".join(["", f"{plan.engine} against itself:", *calibration_lines(found), ""]))
    return OK if found.separable <= found.most_expected else TOO_MANY_ALARMS


def _finished(plan: CalibrationPlan) -> list[AARun]:
    """Runs that are there already and came to their end."""
    runs = [read_run(path.parent) for path in sorted(plan.folder.glob("run-*/run.json"))]
    asked = read_options(plan.options_of(1), installed_engines())
    for run in runs:
        if not _is_of(asked, run):
            raise CbbenchError(
                f"{plan.folder} holds runs of other settings; give another --out, or the same "
                "options as before"
            )
    found = [aa_run(run) for run in runs]
    return [run for run in found if run and run.compared.rounds == asked.repeats]


def _is_of(asked: RunConfig, run: RunFile) -> bool:
    """Whether a run was made with these options; seeds differ from run to run."""
    wanted = describe_request(asked) | {"seed": run.settings.get("seed")}
    workload = (run.settings.get("workload") or {}).get("name")
    requests = run.workload.requests if run.workload else None
    return (
        all(run.settings.get(key) == value for key, value in wanted.items())
        and {engine.spec for engine in run.engines.values()}
        <= {without_folders(spec.text) for spec in asked.engines}
        and requests in (None, asked.num_prompts)
        and str(workload) in asked.workload
    )


def _usable(run: RunFile, folder: Path) -> AARun:
    found = aa_run(run)
    if found is None:
        raise CbbenchError(
            f"{folder} has no interval; expected five rounds or more in which something was ok"
        )
    return found
