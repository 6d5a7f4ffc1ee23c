"""How much of a whole gain is the runtime's, how much the scheduler's and how much the memory's.

`static` against `continuous` changes two of them. Where the run also had the engine in between,
each part's ratio is told, from its own pair; nothing is inferred from a difference.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from harness.results.pairs import Pair
from harness.results.values import Comparison

Find = Callable[[Pair], Comparison | None]


def whole_pairs(pairs: Sequence[Pair]) -> list[Pair]:
    """The pairs that some engine of the run takes apart."""
    return [pair for pair in pairs if pair.kind == "engines" and any(_ways(pair, pairs))]


def split_text(
    whole: Pair,
    pairs: Sequence[Pair],
    find: Find,
    ratio_text: Callable[[Comparison], str],
    name: Callable[[str], str],
) -> str:
    """One sentence for each way over engines in between; empty where there is none."""
    sentences = []
    for way in _ways(whole, pairs):
        told = [
            f"the {part.kind} ({name(part.engine)} against {name(part.baseline)}) is "
            f"{ratio_text(found)}{_beside(part)}"
            for part in way
            if (found := find(part)) is not None
        ]
        if len(told) == len(way):
            sentences.append(f"Of this {', '.join(told[:-1])} and {told[-1]}.")
    return " ".join(sentences)


def _ways(whole: Pair, pairs: Sequence[Pair]) -> Iterator[tuple[Pair, ...]]:
    """Pairs of different causes, each beginning where the one before it ends."""
    parts = [pair for pair in pairs if pair.kind != "engines"]
    begun: list[tuple[Pair, ...]] = [(pair,) for pair in parts if pair.baseline == whole.baseline]
    while begun:
        way = begun.pop(0)
        if way[-1].engine == whole.engine:
            yield way
            continue
        kinds = {part.kind for part in way}
        begun += [
            (*way, part)
            for part in parts
            if part.baseline == way[-1].engine and part.kind not in kinds
        ]


def _beside(pair: Pair) -> str:
    if not pair.also_different:
        return ""
    return f", though they also differ in {', '.join(pair.also_different)}"
