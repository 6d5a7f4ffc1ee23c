"""The comparison as plain lines for terminals and logs.

A table where it fits, stacked blocks where it does not: no name and no number is ever cut, and
there is not one escape code.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from harness.results.saturation import saturated
from harness.results.values import RunFile
from harness.show.report.columns import (
    THIN_LEGEND,
    comparison_row,
    comparison_titles,
    prefix_hits_wanted,
    unfinished_lines,
)
from harness.show.report.finding import (
    OFFERED_RATE_METRICS,
    finding,
    ratio_text,
)
from harness.show.report.stalls import stall_lines
from harness.show.report.words import METRIC_WORDS, THIN, plain

_DEFAULT_WIDTH: Final = 80
_GAP: Final = "  "


def comparison_text(run: RunFile, width: int | None = None, encoding: str = "utf-8") -> str:
    """`width` of `None`: 80. What `encoding` lacks is shown as an escape such as \\u03b1."""
    lines = [*finding(run), ""]
    goodput = bool(run.settings.get("goodput"))
    hits = prefix_hits_wanted(run)
    titles = ["engine", *comparison_titles(goodput=goodput, prefix_hits=hits)]
    for load in run.loads():
        rows = [
            [plain(label), *comparison_row(rounds, goodput=goodput, prefix_hits=hits)]
            for label in run.labels()
            if (rounds := run.cells(label, load))
        ]
        lines += [f"load: {plain(load)}", *table_or_blocks(titles, rows, width or _DEFAULT_WIDTH)]
        lines += [f"{_GAP}{line}" for line in unfinished_lines(run, load)]
        lines += [f"{_GAP}{line}" for line in stall_lines(run, load)]
        lines += [*_ratios(run, load), ""]
    check = run.settings.get("output_check")
    if check:
        lines += [f"{plain(check['sentence'])}.", ""]
    if any(THIN in line for line in lines):
        lines.append(THIN_LEGEND)
    return "\n".join(lines).rstrip().encode(encoding, "backslashreplace").decode(encoding) + "\n"


def table_or_blocks(titles: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> list[str]:
    """Aligned columns when `width` holds them, else a block a row with a line a value."""
    widths = [max(map(len, column)) for column in zip(titles, *rows, strict=True)]
    if sum(widths) + len(_GAP) * (len(widths) - 1) <= width:
        return [_aligned(row, widths) for row in (titles, *rows)]
    label_width = max(map(len, titles[1:]))
    lines = []
    for name, *values in rows:
        lines.append(f"{_GAP}{name}")
        lines += [
            f"{_GAP * 2}{title.ljust(label_width)}{_GAP}{value}"
            for title, value in zip(titles[1:], values, strict=True)
        ]
    return lines


def _aligned(row: Sequence[str], widths: Sequence[int]) -> str:
    first, *others = (
        cell.ljust(size) if place == 0 else cell.rjust(size)
        for place, (cell, size) in enumerate(zip(row, widths, strict=True))
    )
    return _GAP.join((first, *others)).rstrip()


def _ratios(run: RunFile, load: str) -> list[str]:
    """Below saturation throughput is left out: there it only repeats the offered rate."""
    shown = (
        "output_throughput_tok_s",
        "ttft_s.p95",
        "tpot_s.p95",
        "e2e_s.p95",
        "ttft_s by request",
        "e2e_s by request",
    )
    return [
        f"{_GAP}{plain(item.engine)} / {plain(item.baseline)}, {METRIC_WORDS[item.metric]}: "
        f"{ratio_text(item)}{', ' + item.answer if item.answer else ''}"
        for item in run.comparisons
        if item.load == load and item.request_class is None and item.metric in shown
        if item.metric not in OFFERED_RATE_METRICS
        or saturated(run, load, (item.baseline, item.engine))
    ]
