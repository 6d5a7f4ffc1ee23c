"""`cbbench run` up to its first model: all that can be refused is refused here, and quickly.

Loads neither scipy nor pyarrow before the options are known to be sound; the run itself is
`harness.run.session`.
"""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import TextIO

from engines.api import CbbenchError, Clock
from engines.registry import installed_engines
from harness.run.config import STDOUT, RunOptions, read_options, settings_text
from harness.run.interrupts import Interrupts


def launch(options: RunOptions, clock: Clock, stdout: TextIO, stderr: TextIO) -> int:
    """The exit code. Raises `CbbenchError` for every mistake.

    `clock` counts from the program's start.
    """
    config = read_options(options, installed_engines())
    _check_json_file(config.json)
    from harness.metrics import parse_goodput
    from harness.run.folder import claim, run_id
    from workloads.workload import check_draw, open_workload

    warnings = parse_goodput(config.goodput).warnings
    opened = open_workload(config.workload, trace_format=config.trace_format)
    check_draw(
        opened,
        seed=config.seed,
        num_prompts=config.num_prompts,
        input_len=config.input_len,
        output_len=config.output_len,
        range_ratio=config.range_ratio,
        burstiness=config.burstiness,
        trace_scale=config.trace_scale,
    )
    with Interrupts() as interrupts:
        folder = claim(config.out, run_id(config.workload, settings_text(config), datetime.now()))
        from harness.run.session import Session

        session = Session(config, opened, folder, interrupts, clock, stdout, stderr)
        return session.run(warnings)


def _check_json_file(name: str | None) -> None:
    """Known before the run: whether its result can be written where it is wanted."""
    if name is None or name == STDOUT:
        return
    path = Path(name)
    if path.is_dir() or not path.parent.is_dir():
        raise CbbenchError(f"--json is {name!r}; expected a file in an existing folder, or -")
