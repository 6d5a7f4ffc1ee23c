"""How long answers froze, beside what a full step of the engine takes. Pure text.

A scheduler that bounds a step bounds what a prompt can do to running answers: its longest stall is
a step or two. One that does not shows the prompt's whole length.
"""

from __future__ import annotations

from statistics import median

from harness.results.values import RunFile, finished_or_all
from harness.show.report.words import milliseconds, number, plain


def stall_lines(run: RunFile, load: str) -> list[str]:
    """A sentence for each engine that has a token budget, or has one to be compared with."""
    told = {label: _told(run, load, label) for label in run.labels()}
    if not any("full step" in text for text in told.values()):
        return []
    return [text for text in told.values() if text]


def _told(run: RunFile, load: str, label: str) -> str:
    rounds = finished_or_all(run.cells(label, load))
    stalls = [r.max_stall_s.max for r in rounds if r.max_stall_s.max is not None]
    if not stalls:
        return ""
    stall_s = median(stalls)
    text = f"longest stall of {plain(label)}: {milliseconds(stall_s)} ms"
    full = [r.scheduling.full_step_s for r in rounds if r.scheduling is not None]
    known = [value for value in full if value]
    if known:
        step_s = median(known)
        return (
            f"{text}, {number(stall_s / step_s)} times its median full step "
            f"({milliseconds(step_s)} ms)."
        )
    budget = run.engines[label].settings.get("max_num_batched_tokens")
    if budget is None:
        return f"{text}; its steps have no token budget."
    return f"{text}; none of its steps filled its budget of {budget} tokens."
