"""Progress as plain lines, for logs and dumb terminals: complete names, no escape codes.

Pure: the caller decides when a line is due and where it goes.
"""

from __future__ import annotations

from harness.records import CellSnapshot
from harness.show.live import headline
from harness.show.snapshot import EngineStatus, RunSnapshot
from harness.show.text import duration, one_line


def progress_lines(run: RunSnapshot) -> list[str]:
    """What goes on now: the run's line, and one for each engine that does something."""
    busy = [engine for engine in run.engines if engine.state in ("running", "warming up")]
    return [f"{headline(run)}", *(f"  {engine_line(engine)}" for engine in busy)]


def engine_line(engine: EngineStatus) -> str:
    """One engine's state and numbers, as at the end of a cell."""
    if engine.error:
        return one_line(f"{engine.label}: {engine.state}: {engine.error}")
    if engine.cell is None:
        return one_line(f"{engine.label}: {engine.state}")
    left = "" if engine.left_s is None else f", about {duration(engine.left_s)} left"
    return one_line(f"{engine.label}: {engine.state}, {_numbers(engine.cell)}{left}")


def _numbers(cell: CellSnapshot) -> str:
    """The numbers that are known, each with its name; an unknown one is left out."""
    bad = cell.done - cell.counts.get("ok", 0)
    parts = [f"{cell.done}/{cell.total} requests"]
    if bad:
        parts.append(f"{bad} not ok")
    if cell.running or cell.waiting:
        parts.append(f"{cell.running} running, {cell.waiting} waiting")
    if cell.kv_used is not None:
        parts.append(f"KV {cell.kv_used:.0%}")
    if cell.output_tok_s is not None:
        parts.append(f"{cell.output_tok_s:.0f} tok/s")
    if cell.ttft_p95_s is not None:
        parts.append(f"p95 TTFT {1000 * cell.ttft_p95_s:.0f} ms")
    if cell.preemptions:
        parts.append(f"{cell.preemptions} preemptions")
    return ", ".join(parts)
