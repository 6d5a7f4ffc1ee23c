"""What a reader of a check must know beside its numbers, in sentences. Decides nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from harness.compare.across import also_different
from harness.compare.case import Case, Source
from harness.compare.matching import case_name
from harness.results.values import unfinished_note

ONLY_THE_CLIENTS: Final = (
    "the engines do not tell on what machine they run; only that of the client was compared"
)


def beside_the_numbers(
    baseline: Source, run: Source, pairs: Sequence[tuple[Case, Case]]
) -> Iterator[str]:
    """Of each pair (baseline's case, run's case), then of the two runs as a whole."""
    for theirs, mine in pairs:
        yield from _of_case(theirs, mine)
    changed = also_different(baseline.facts, run.facts)
    if changed:
        yield f"baseline and run also differ in {', '.join(changed)}"


def _of_case(theirs: Case, mine: Case) -> Iterator[str]:
    name = case_name(mine)
    for case, whose in ((theirs, "the baseline"), (mine, "this run")):
        if case.suspect:
            yield f"{name}: SUSPECT rounds of {whose}: {case.suspect} of {case.begun}"
    if mine.offered is not None and mine.ok is not None and 0 < mine.ok < mine.offered:
        yield f"{name}: {mine.ok} of {mine.offered} requests were ok"
    if mine.unfinished and mine.ended:
        yield f"{name}: {unfinished_note(mine.unfinished, kept=False)}"
    if mine.kept_up:
        yield (
            f"{name}: it kept up with the arrivals, so throughput only repeats their rate; gate "
            "latency here, or throughput with everything at once"
        )
    changed = also_different(theirs.facts, mine.facts)
    if changed:
        yield f"{name}: settings differ: {', '.join(changed)}"
