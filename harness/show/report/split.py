"""How much of a whole system's gain is the runtime's and how much the scheduler's.

`static` against `continuous` changes both. Where the run also had the engine in between, the two
ratios are told, each from its own pair; nothing is inferred from a difference.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from harness.results.pairs import Pair
from harness.results.values import Comparison

Find = Callable[[Pair], Comparison | None]


def whole_pairs(pairs: Sequence[Pair]) -> list[Pair]:
    """The pairs that some engine of the run takes apart."""
    return [pair for pair in pairs if pair.kind == "engines" and _chains(pair, pairs)]


def split_text(
    whole: Pair,
    pairs: Sequence[Pair],
    find: Find,
    ratio_text: Callable[[Comparison], str],
    name: Callable[[str], str],
) -> str:
    """One sentence for each engine in between; empty where there is none."""
    sentences = []
    for runtime, scheduler in _chains(whole, pairs):
        first, second = find(runtime), find(scheduler)
        if first is not None and second is not None:
            sentences.append(
                f"Of this the runtime ({name(runtime.engine)} against {name(runtime.baseline)}) is "
                f"{ratio_text(first)}{_beside(runtime)} and the scheduler "
                f"({name(scheduler.engine)} against {name(scheduler.baseline)}) is "
                f"{ratio_text(second)}{_beside(scheduler)}."
            )
    return " ".join(sentences)


def _chains(whole: Pair, pairs: Sequence[Pair]) -> list[tuple[Pair, Pair]]:
    """Runtime pairs from its baseline, with the scheduler pair that leads on to its engine."""
    return [
        (runtime, scheduler)
        for runtime in pairs
        if (runtime.kind, runtime.baseline) == ("runtime", whole.baseline)
        for scheduler in pairs
        if (scheduler.kind, scheduler.baseline) == ("scheduler", runtime.engine)
        and scheduler.engine == whole.engine
    ]


def _beside(pair: Pair) -> str:
    if not pair.also_different:
        return ""
    return f", though they also differ in {', '.join(pair.also_different)}"
