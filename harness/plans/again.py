"""Plans the cells of a log again and says in words how that went."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Final

from engines.loop.plan import Plan
from engines.loop.replay import Difference, Replay, replay
from harness.plans.reader import PlannedCell
from harness.records.schema import CellKey
from harness.show.text import counted, one_line

_MOST_SHOWN: Final = 8


@dataclass(frozen=True, slots=True)
class CellReplay:
    """How far one cell's plans could be made again."""

    key: CellKey
    outcome: Replay


def replay_cells(cells: Iterable[PlannedCell]) -> list[CellReplay]:
    return [CellReplay(cell.key, replay(cell.info, cell.turns())) for cell in cells]


def replay_lines(replays: Sequence[CellReplay]) -> list[str]:
    """A line a cell, and below it where the two parted."""
    lines = []
    for done in replays:
        key, outcome = done.key, done.outcome
        name = one_line(f"{key.engine}, {key.load}, round {key.round}")
        steps, waits = counted(outcome.steps, "step"), counted(_waits(outcome), "wait")
        counts = f"{counted(outcome.plans, 'plan')} in {steps} and {waits}"
        if outcome.difference is None:
            lines.append(f"{name}: identical, {counts}")
        else:
            lines.append(f"{name}: differs after {counts}")
            lines += [f"  {line}" for line in _difference(outcome.difference)]
    return lines


def _waits(outcome: Replay) -> int:
    return outcome.plans - outcome.steps


def _difference(difference: Difference) -> list[str]:
    where = f"step {difference.step}, planned at {difference.time_s:.6f} s"
    if difference.why:
        return [f"{where}: {difference.why}"]
    logged, planned = difference.logged, difference.planned
    if logged is None or planned is None:
        return [f"{where}: {_whole(logged)} in the log, {_whole(planned)} now"]
    parts = [field.name for field in fields(Plan)]
    return [where] + [
        f"{part}: {_short(getattr(logged, part))} in the log, {_short(getattr(planned, part))} now"
        for part in parts
        if _order(getattr(logged, part)) != _order(getattr(planned, part))
    ]


def _order(part: Any) -> object:
    """Of a mapping its items in order, since the order of a plan counts."""
    if isinstance(part, Mapping):
        return list(part.items())
    return list(part) if isinstance(part, Sequence) else part


def _whole(plan: Plan | None) -> str:
    return "nobody to plan for" if plan is None else "a plan"


def _short(part: Any) -> str:
    """The first few entries."""
    if not isinstance(part, Mapping | Sequence) or not part:
        return "nothing" if part is None or not part else str(part)
    items = [f"{k} {v}" for k, v in part.items()] if isinstance(part, Mapping) else map(str, part)
    shown = list(items)
    more = f" and {len(shown) - _MOST_SHOWN} more" if len(shown) > _MOST_SHOWN else ""
    return one_line(", ".join(shown[:_MOST_SHOWN]) + more)
