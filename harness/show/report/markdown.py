"""report.md: the sections in order, each a plain function from a run to lines."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Final

from harness.metrics.results import CellResult, FailureQuantiles
from harness.results.pairs import choose_pairs
from harness.results.saturation import saturated
from harness.results.values import Comparison, RunFile
from harness.show.report.columns import (
    LEDGER_PARTS,
    THIN_LEGEND,
    class_row,
    comparison_row,
    comparison_titles,
    group_columns,
    ledger_row,
    prefix_hits_wanted,
    unfinished_lines,
)
from harness.show.report.finding import finding
from harness.show.report.markup import escaped, markdown_table
from harness.show.report.memory import MEMORY_INTRO, MEMORY_TITLES, memory_row
from harness.show.report.outputs import output_lines
from harness.show.report.over_http import over_http_lines
from harness.show.report.setup import engine_lines, environment_lines, workload_lines
from harness.show.report.stalls import stall_lines
from harness.show.report.words import (
    METRIC_WORDS,
    MISSING,
    code,
    metric_value,
    milliseconds,
    number,
)

_KINDS: Final = {
    "scheduler": "only the scheduler differs",
    "runtime": "the runtime differs (generate and the step loop), the batching does not",
    "memory": "only the memory's allocation differs",
    "engines": "several things differ",
}


def report_text(run: RunFile) -> str:
    """The whole report."""
    sections = [
        ["# Batching schedulers compared", "", *_finding(run)],
        *[_load(run, load) for load in run.loads()],
        _outcomes(run),
        _ledger(run),
        _memory(run),
        over_http_lines(run),
        output_lines(run),
        _verdict(run),
        ["## Workload", "", *workload_lines(run)],
        ["## Engines", "", *engine_lines(run)],
        ["## Environment", "", *environment_lines(run)],
        _notes(run),
    ]
    return "\n\n".join("\n".join(section).strip() for section in sections if section) + "\n"


def _finding(run: RunFile) -> list[str]:
    # Labels come from outside; escaping keeps "[/cb]" or "*" from being read as markup.
    lines = []
    for paragraph in finding(run):
        lines += [escaped(paragraph), ""]
    return lines


def _load(run: RunFile, load: str) -> list[str]:
    goodput = bool(run.settings.get("goodput"))
    labels = [label for label in run.labels() if run.cells(label, load)]
    hits = prefix_hits_wanted(run)
    rows = [
        [code(label), *comparison_row(run.cells(label, load), goodput=goodput, prefix_hits=hits)]
        for label in labels
    ]
    lines = [f"## Load {code(load)}", ""]
    titles = comparison_titles(goodput=goodput, prefix_hits=hits)
    lines += markdown_table(["engine", *titles], rows)
    beside = [*unfinished_lines(run, load), *stall_lines(run, load)]
    if beside:
        lines += ["", *(f"- {escaped(line)}" for line in beside)]
    lines += _classes(run, load, labels, goodput=goodput)
    lines += _with_failures(run, load, labels)
    pairs = choose_pairs(run.labels(), run.engines, run.settings.get("baseline"))
    for pair in pairs:
        lines += _ratios(
            [
                item
                for item in run.comparisons
                if (item.load, item.baseline, item.engine) == (load, pair.baseline, pair.engine)
            ],
            is_saturated=saturated(run, load, (pair.baseline, pair.engine)),
        )
    return lines


def _classes(run: RunFile, load: str, labels: Sequence[str], *, goodput: bool) -> list[str]:
    names = dict.fromkeys(
        name for label in labels for cell in run.cells(label, load) for name in cell.classes
    )
    if len(names) < 2:
        return []
    columns = group_columns(goodput=goodput)
    rows = []
    for name in names:
        for label in labels:
            texts = class_row(run.cells(label, load), name, goodput=goodput)
            if texts:
                rows.append([f"{code(name)}, {code(label)}", *texts])
    titles = ["class, engine", *(column.title for column in columns)]
    return ["", "By class of request:", "", *markdown_table(titles, rows)]


def _with_failures(run: RunFile, load: str, labels: Sequence[str]) -> list[str]:
    rows = [
        [f"{code(label)}, round {cell.round}, {name.removesuffix('_s')}", *_failure_row(sample)]
        for label in labels
        for cell in run.cells(label, load)
        for name, sample in (cell.with_failures or {}).items()
    ]
    if not rows:
        return []
    intro = "More than 1% were not ok. The same quantiles with those requests as infinite:"
    return ["", intro, "", *markdown_table(["what", "p50 ms", "p95 ms", "p99 ms", "n"], rows)]


def _failure_row(sample: FailureQuantiles) -> list[str]:
    values = (sample.p50, sample.p95, sample.p99)
    return [value if isinstance(value, str) else milliseconds(value) for value in values] + [
        str(sample.n)
    ]


def _ratios(items: Sequence[Comparison], *, is_saturated: bool) -> list[str]:
    whole = [item for item in items if item.request_class is None]
    if not whole:
        return []
    first = whole[0]
    intro = f"{code(first.engine)} / {code(first.baseline)}: {_KINDS[first.kind]}"
    if first.also_different:
        intro += f"; settings that differ too: {code(', '.join(first.also_different))}"
    titles = ["metric", "baseline", "engine", "ratio", "95% interval", "answer", "would have shown"]
    classes = [
        item for item in items if item.request_class is not None and item.metric.endswith(".p95")
    ]
    rows = [_ratio_row(item) for item in (*whole, *classes)]
    lines = ["", intro + ".", "", *markdown_table(titles, rows)]
    if not is_saturated:
        lines += ["", "Below saturation throughput only repeats the offered rate: compare latency."]
    return lines


def _ratio_row(item: Comparison) -> list[str]:
    name = METRIC_WORDS.get(item.metric, item.metric)
    if item.request_class is not None:
        name += f", class {code(item.request_class)}"
    interval = MISSING
    if item.low is not None and item.high is not None:
        interval = f"{number(item.low)}-{number(item.high)}"
    return [
        name,
        metric_value(item.metric, item.baseline_value),
        metric_value(item.metric, item.engine_value),
        number(item.ratio),
        interval + (f" ({item.note})" if item.note else ""),
        item.answer or MISSING,
        MISSING if item.detectable is None else f"beyond {number(item.detectable)}x",
    ]


def _outcomes(run: RunFile) -> list[str]:
    titles = ["engine, load", "offered", "ok", "rejected", "failed", "timeout", "cancelled"]
    rows = []
    reasons = []
    for load, label in _places(run):
        cells = run.cells(label, load)
        name = f"{code(label)}, {code(load)}"
        counts = [str(sum(getattr(cell.counts, title) for cell in cells)) for title in titles[1:]]
        rows.append([name, *counts])
        reasons += [f"- {name}: {text}" for text in _grouped_reasons(cells)]
        cut = sum(cell.goodput_excluded or 0 for cell in cells)
        if cut:
            reasons.append(f"- {name}: {cut} cut off by the run's end, not in attainment")
    errors = [
        f"- {code(label)} could not be run: {code(text)}"
        for label, text in (run.settings.get("engine_errors") or {}).items()
    ]
    intro = "Requests by outcome, summed over rounds; everything that was not ok with its reason:"
    table = markdown_table(titles, rows)
    return ["## Outcomes", "", intro, "", *table, "", *reasons, *errors]


def _grouped_reasons(cells: Sequence[CellResult]) -> list[str]:
    """How often each reason was given over all rounds, the most frequent first."""
    counted: Counter[tuple[str, str]] = Counter()
    for cell in cells:
        for status, by_reason in cell.reasons.items():
            for reason, times in by_reason.items():
                counted[status, reason] += times
    return [
        f"{times} {status}: {code(reason)}" for (status, reason), times in counted.most_common()
    ]


def _places(run: RunFile) -> list[tuple[str, str]]:
    """Every (load, engine) that has a cell, in the order they were given."""
    return [(o, e) for o in run.loads() for e in run.labels() if run.cells(e, o)]


def _ledger(run: RunFile) -> list[str]:
    blank = [MISSING] * (len(LEDGER_PARTS) + 1)
    rows = [
        [f"{code(label)}, {code(load)}", *(ledger_row(run.cells(label, load)) or blank)]
        for load, label in _places(run)
    ]
    if not rows:
        return []
    titles = ["engine, load", "executed positions", *(title for _, title in LEDGER_PARTS)]
    intro = "What the executed token positions were spent on, summed over rounds:"
    return ["## Token ledger", "", intro, "", *markdown_table(titles, rows)]


def _memory(run: RunFile) -> list[str]:
    rows = [
        [f"{code(label)}, {code(load)}", *memory_row(run.measured(label, load))]
        for load, label in _places(run)
        if any(cell.steps for cell in run.cells(label, load))
    ]
    if not rows:
        return []
    table = markdown_table(["engine, load", *MEMORY_TITLES], rows)
    return ["## Memory", "", MEMORY_INTRO, "", *table]


def _verdict(run: RunFile) -> list[str]:
    lines = ["## Verdict", ""]
    for load, label in _places(run):
        cells = run.cells(label, load)
        suspect = [cell for cell in cells if cell.verdict and cell.verdict.status == "SUSPECT"]
        word = f"SUSPECT in {len(suspect)} of {len(cells)} rounds" if suspect else "VALID"
        lines.append(f"- {code(label)}, {code(load)}: {word}")
        rounds_of: dict[str, list[str]] = defaultdict(list)
        for cell in suspect:
            for reason in cell.verdict.reasons if cell.verdict else ():
                rounds_of[reason].append(str(cell.round))
        lines += [
            f"    - round {', '.join(rounds)}: {escaped(reason)}"
            for reason, rounds in rounds_of.items()
        ]
    return lines


def _widened(run: RunFile) -> list[str]:
    """Said where rounds were added until intervals were narrow."""
    if run.settings.get("until_ci") is None:
        return []
    return [
        "- Rounds were added until intervals were narrow (--until-ci), so each interval is "
        "widened: all looks together miss in 5% of runs."
    ]


def _notes(run: RunFile) -> list[str]:
    return [
        "## How to read this",
        "",
        "- Latencies are milliseconds and count from a request's scheduled arrival. TTFT: first "
        "token; TPOT: time per output token after the first, per request; ITL: gaps between "
        "tokens, pooled; E2E: last token; max stall: the longest gap inside any request.",
        "- Prefix hits: prompt tokens found in a prefix cache at a request's first admission, of "
        "all prompt tokens; they are not executed.",
        "- Throughput counts requests that ended ok, from the first scheduled arrival to the last "
        "token. Padding, recomputed and discarded tokens are never throughput.",
        "- With several rounds a cell shows the median of the rounds and their range. Ratios are "
        "paired by round; an interval needs five rounds. Request by request: a round's median over "
        "requests of each one's own ratio, on those that were ok in both.",
        *_widened(run),
        f"- {THIN_LEGEND.replace('*', chr(92) + '*')}",
        f"- {MISSING}: undefined, or not known to this engine; never 0.",
    ]
