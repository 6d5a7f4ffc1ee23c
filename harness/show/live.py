"""The live table of a run: a pure function from a snapshot to something that rich can draw.

Opens no terminal, reads no clock and keeps nothing. Text from outside goes in as `Text`, which
rich never reads as markup.
"""

from __future__ import annotations

from typing import Final

from rich.console import Group
from rich.table import Table
from rich.text import Text

from harness.records import CellSnapshot
from harness.show.snapshot import EngineStatus, RunSnapshot
from harness.show.text import duration, one_line

NOTHING: Final = "-"
_STYLES: Final = {"running": "bold", "failed": "red", "done": "green", "loading": "dim"}
_COLUMNS: Final = ("done", "left", "running", "waiting", "KV", "tok/s", "p95 TTFT", "preempted")


def render(run: RunSnapshot) -> Group:
    """A line about the run, a row per engine, and what went wrong."""
    table = Table(box=None, pad_edge=False, expand=False)
    table.add_column("engine", overflow="fold")
    table.add_column("state", no_wrap=True)
    for column in _COLUMNS:
        table.add_column(column, justify="right", no_wrap=True)
    for engine in run.engines:
        table.add_row(*_row(engine))
    notes = [
        Text(one_line(f"{engine.label}: {engine.error}"), style="red")
        for engine in run.engines
        if engine.error
    ]
    if run.message:
        notes.append(Text(one_line(run.message), style="yellow"))
    return Group(Text(headline(run), style="bold"), table, *notes)


def headline(run: RunSnapshot) -> str:
    """The workload, the model, the load, which round it is, and the time."""
    rounds = "" if run.rounds is None else f" of {run.rounds}"
    place = f"{run.load}, round {run.round}{rounds}" if run.round else "loading"
    left = "" if run.left_s is None else f", about {duration(run.left_s)} left"
    text = f"{run.workload} on {run.model}: {place}, {duration(run.elapsed_s)}{left}"
    return one_line(text)


def cells_of(cell: CellSnapshot | None, left_s: float | None) -> tuple[str, ...]:
    """The columns of `live`'s table after the state, as text; also what `plain` prints."""
    if cell is None:
        return (NOTHING,) * len(_COLUMNS)
    return (
        f"{cell.done}/{cell.total}",
        NOTHING if left_s is None else duration(left_s),
        str(cell.running),
        str(cell.waiting),
        NOTHING if cell.kv_used is None else f"{cell.kv_used:.0%}",
        NOTHING if cell.output_tok_s is None else f"{cell.output_tok_s:.0f}",
        NOTHING if cell.ttft_p95_s is None else f"{1000 * cell.ttft_p95_s:.0f} ms",
        str(cell.preemptions),
    )


def _row(engine: EngineStatus) -> tuple[Text, ...]:
    style = _STYLES.get(engine.state, "")
    return (
        Text(one_line(engine.label), style=style),
        Text(engine.state, style=style),
        *(Text(text) for text in cells_of(engine.cell, engine.left_s)),
    )
