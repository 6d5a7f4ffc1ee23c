"""The columns of a comparison, a row an engine; used by Markdown and by plain text alike."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from harness.metrics.results import CellResult, GroupResult, Quantiles
from harness.results.values import RunFile, finished_or_all, unfinished_note
from harness.show.report.words import (
    MISSING,
    THIN,
    milliseconds,
    number,
    over_rounds,
    percent,
    plain,
)

THIN_LEGEND: Final = (
    f"{THIN} too few samples for this quantile in some round (p95 needs 59, p99 needs 299)."
)


@dataclass(frozen=True, slots=True)
class Column:
    """`text` is given the rounds of one engine at one load, or of one class of it.

    The rounds are those that ended, as far as some did; `every_round` takes the others too.
    """

    title: str
    text: Callable[[Sequence[GroupResult]], str]
    every_round: bool = False


@dataclass(frozen=True, slots=True)
class CellColumn:
    """A column that only a whole cell has."""

    title: str
    text: Callable[[Sequence[CellResult]], str]
    every_round: bool = False


def _latency(title: str, name: str, q: str) -> Column:
    def text(rounds: Sequence[GroupResult]) -> str:
        samples: list[Quantiles] = [getattr(result, name) for result in rounds]
        shown = over_rounds([getattr(sample, q) for sample in samples], milliseconds)
        thin = any(q in sample.thin and sample.n for sample in samples)
        return shown + (THIN if thin else "")

    return Column(title, text)


def _ok(rounds: Sequence[GroupResult]) -> str:
    ok = sum(result.counts.ok for result in rounds)
    return f"{ok}/{sum(result.counts.offered for result in rounds)}"


def _preemptions(rounds: Sequence[GroupResult]) -> str:
    known = [result.preemptions for result in rounds if result.preemptions is not None]
    if not known:
        return MISSING
    return over_rounds([float(item.total) for item in known], lambda value: f"{value:.0f}")


def _padding(rounds: Sequence[CellResult]) -> str:
    ledgers = [result.ledger for result in rounds if result.ledger and result.ledger.executed]
    return over_rounds([ledger.padding / ledger.executed for ledger in ledgers], percent)


def _kv_mean(rounds: Sequence[CellResult]) -> str:
    known = [result.kv_utilisation for result in rounds]
    return over_rounds([item.mean if item else None for item in known], percent)


def _verdict(rounds: Sequence[CellResult]) -> str:
    verdicts = [result.verdict.status for result in rounds if result.verdict]
    suspect = verdicts.count("SUSPECT")
    if not suspect:
        return "VALID" if verdicts else MISSING
    return "SUSPECT" if suspect == len(rounds) else f"SUSPECT {suspect}/{len(rounds)}"


_RATES: Final = (
    Column("output tok/s", lambda r: over_rounds([x.output_throughput_tok_s for x in r])),
    Column("req/s", lambda r: over_rounds([x.request_throughput_req_s for x in r])),
)
_GOODPUT: Final = (
    Column("goodput req/s", lambda r: over_rounds([x.goodput_req_s for x in r])),
    Column("attainment", lambda r: over_rounds([x.attainment for x in r], percent)),
)
_LATENCIES: Final = (
    _latency("TTFT p50 ms", "ttft_s", "p50"),
    _latency("TTFT p95 ms", "ttft_s", "p95"),
    _latency("TPOT p95 ms", "tpot_s", "p95"),
    _latency("ITL p95 ms", "itl_s", "p95"),
    _latency("E2E p95 ms", "e2e_s", "p95"),
    _latency("max stall ms", "max_stall_s", "max"),
)
_PREFIX_HITS: Final = (
    CellColumn("prefix hits", lambda r: over_rounds([x.prefix_hit_share for x in r], percent)),
)
_CELL: Final = (
    CellColumn("slot use", lambda r: over_rounds([x.slot_utilisation for x in r], percent)),
    CellColumn("KV use", _kv_mean),
    CellColumn("padding", _padding),
    CellColumn("verdict", _verdict, every_round=True),
)


def group_columns(*, goodput: bool) -> tuple[Column, ...]:
    """Columns that a class has too."""
    slos = _GOODPUT if goodput else ()
    return (
        *_RATES,
        *slos,
        *_LATENCIES,
        Column("preemptions", _preemptions),
        Column("ok/offered", _ok, every_round=True),
    )


def comparison_row(rounds: Sequence[CellResult], *, goodput: bool, prefix_hits: bool) -> list[str]:
    measured = finished_or_all(rounds)
    shared = [
        column.text(rounds if column.every_round else measured)
        for column in group_columns(goodput=goodput)
    ]
    return shared + [
        column.text(rounds if column.every_round else measured)
        for column in _cell_columns(prefix_hits=prefix_hits)
    ]


def prefix_hits_wanted(run: RunFile) -> bool:
    """Whether an engine of the run keeps prefixes, or found some."""
    keeps = any(engine.settings.get("prefix_caching") for engine in run.engines.values())
    return keeps or any(result.prefix_hit_share for result in run.results)


def class_row(rounds: Sequence[CellResult], name: str, *, goodput: bool) -> list[str]:
    """One class of an engine's requests; `[]` where it had none of it."""
    every, measured = (
        [cell.classes[name] for cell in cells if name in cell.classes]
        for cells in (rounds, finished_or_all(rounds))
    )
    if not every:
        return []
    return [
        column.text(every if column.every_round else measured)
        for column in group_columns(goodput=goodput)
    ]


def unfinished_lines(run: RunFile, load: str) -> list[str]:
    """A sentence for each engine with rounds that did not end, for below the table."""
    lines = []
    for label in run.labels():
        cells = run.cells(label, load)
        number = sum(not cell.finished for cell in cells)
        if number:
            note = unfinished_note(number, kept=number == len(cells))
            lines.append(f"{plain(label)}: {note}.")
    return lines


def comparison_titles(*, goodput: bool, prefix_hits: bool) -> list[str]:
    shared = [column.title for column in group_columns(goodput=goodput)]
    return shared + [column.title for column in _cell_columns(prefix_hits=prefix_hits)]


def _cell_columns(*, prefix_hits: bool) -> tuple[CellColumn, ...]:
    return (*_PREFIX_HITS, *_CELL) if prefix_hits else _CELL


def ledger_row(rounds: Sequence[CellResult]) -> list[str] | None:
    """Executed positions summed over rounds, and each part's share."""
    ledgers = [result.ledger for result in rounds if result.ledger is not None]
    executed = sum(ledger.executed for ledger in ledgers)
    if not executed:
        return None
    shares = [
        percent(sum(getattr(ledger, name) for ledger in ledgers) / executed)
        for name, _ in LEDGER_PARTS
    ]
    return [number(float(executed), 1), *shares]


LEDGER_PARTS: Final = (
    ("useful_prompt", "useful prompt"),
    ("useful_output", "useful output"),
    ("recomputed", "recomputed"),
    ("padding", "padding"),
    ("rejected_draft", "rejected draft"),
    ("discarded", "discarded"),
)
