"""Finished runs side by side, as plain lines and as Markdown. Pure.

Both have the same sentences and the same table; nothing is cut, and there is no escape code.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from string import ascii_uppercase
from typing import Final

from harness.compare.across import Matched, RunRatio, RunsCompared, middle
from harness.compare.case import Case, Source
from harness.compare.matching import case_name
from harness.results.values import unfinished_note
from harness.show.report.comparison import table_or_blocks
from harness.show.report.markup import escaped, markdown_table
from harness.show.report.words import MISSING, metric_value, number, plain

_SHOWN: Final = {
    "output_throughput_tok_s": "output tok/s",
    "request_throughput_req_s": "req/s",
    "goodput_req_s": "goodput req/s",
    "ttft_s.p50": "TTFT p50",
    "ttft_s.p95": "TTFT p95",
    "ttft_from_send_s.p50": "TTFT from send p50",
    "ttft_from_send_s.p95": "TTFT from send p95",
    "tpot_s.p50": "TPOT p50",
    "tpot_s.p95": "TPOT p95",
    "itl_s.p95": "ITL p95",
    "e2e_s.p50": "E2E p50",
    "e2e_s.p95": "E2E p95",
    "max_stall_s.max": "longest stall",
    "response_s.p50": "response p50",
    "response_s.p95": "response p95",
    "preemptions.total": "preemptions",
}
_FROM_SEND: Final = "ttft_from_send_s"
_NOT_IN_TURNS: Final = (
    "The runs were not made in turns, so their rounds are not paired. An interval holds what "
    "changes from round to round; what changed between the runs, such as a warmer machine, is in "
    "the ratio alone."
)
_OTHER_REQUESTS: Final = (
    "Unpaired: without a workload hash on both sides nobody can say whether the requests were the "
    "same."
)
_DETECTABLE: Final = (
    "In brackets: the smallest effect, either way, that these rounds would have shown four times "
    "in five."
)
_WIDTH: Final = 80


def runs_text(compared: RunsCompared, width: int | None = None, encoding: str = "utf-8") -> str:
    """`width` of `None`: 80. What `encoding` lacks is shown as an escape."""
    letters = source_letters(compared)
    lines = [*_sources(compared), "", *_warnings(compared), ""]
    for matched in compared.matched:
        titles = _titles(matched, letters)
        lines.append(plain(_title(matched, letters)))
        lines += table_or_blocks(titles, _rows(matched), width or _WIDTH)
        lines += [f"  {plain(remark)}" for remark in _remarks(matched, letters)]
        lines.append("")
    lines += [f"left out: {plain(text)}" for text in compared.left_out]
    return "\n".join(lines).rstrip().encode(encoding, "backslashreplace").decode(encoding) + "\n"


def runs_markdown(compared: RunsCompared) -> str:
    letters = source_letters(compared)
    lines = ["# Runs compared", "", *(f"- {escaped(line)}" for line in _sources(compared))]
    lines += [text for line in _warnings(compared) for text in ("", escaped(line))]
    for matched in compared.matched:
        rows = [[escaped(cell) for cell in row] for row in _rows(matched)]
        table = markdown_table(_titles(matched, letters), rows)
        lines += ["", f"## {escaped(_title(matched, letters))}", "", *table, ""]
        lines += [f"- {escaped(remark)}" for remark in _remarks(matched, letters)]
    if compared.left_out:
        lines += ["", "## Left out", "", *(f"- {escaped(text)}" for text in compared.left_out)]
    return "\n".join(lines).rstrip() + "\n"


def _sources(compared: RunsCompared) -> list[str]:
    letters = source_letters(compared)
    lines = [f"{letters[source.name]}: {_source(source)}" for source in compared.sources]
    lines[0] += ", the reference"
    return lines


def source_letters(compared: RunsCompared) -> dict[str, str]:
    """A short name for each source: A is the reference, then B, C and so on."""
    return {
        source.name: ascii_uppercase[number % 26] + (str(number) if number >= 26 else "")
        for number, source in enumerate(compared.sources)
    }


def _source(source: Source) -> str:
    rounds = max((len(case.rounds) for case in source.cases), default=0)
    told = [source.tool, f"{rounds} round{'' if rounds == 1 else 's'}"]
    if source.workload:
        told.append(f"workload {source.workload}")
    if source.workload_hash:
        told.append(f"hash {source.workload_hash[:12]}")
    return f"{plain(source.name)} ({plain(', '.join(told))})"


def _warnings(compared: RunsCompared) -> list[str]:
    if all(matched.same_requests for matched in compared.matched):
        return [_NOT_IN_TURNS]
    return [_OTHER_REQUESTS, _NOT_IN_TURNS]


def _title(matched: Matched, letters: Mapping[str, str]) -> str:
    a, b = matched.baseline, matched.engine
    one, two = letters[matched.baseline_source], letters[matched.engine_source]
    if (a.engine, a.load) == (b.engine, b.load):
        return f"{case_name(a)}: {two} / {one}"
    return f"{two}, {case_name(b)} / {one}, {case_name(a)}"


def _titles(matched: Matched, letters: Mapping[str, str]) -> list[str]:
    one, two = letters[matched.baseline_source], letters[matched.engine_source]
    return ["metric", one, two, f"{two} / {one}", "95% interval", "answer"]


def _rows(matched: Matched) -> list[list[str]]:
    return [_row(ratio) for ratio in _shown(matched)]


def _shown(matched: Matched) -> list[RunRatio]:
    """The metrics worth a line, as far as a side has them; TTFT from the send only for others."""
    by_name = {ratio.metric: ratio for ratio in matched.ratios}
    return [
        by_name[name]
        for name in _SHOWN
        if name in by_name
        if not name.startswith(_FROM_SEND) or _needs_from_send(matched)
    ]


def _needs_from_send(matched: Matched) -> bool:
    return any(not _has(case, "ttft_s.p50") for case in (matched.baseline, matched.engine))


def _has(case: Case, metric: str) -> bool:
    return any(value is not None for value in case.values.get(metric, ()))


def _row(ratio: RunRatio) -> list[str]:
    interval = MISSING
    if ratio.low is not None and ratio.high is not None:
        interval = f"{number(ratio.low)}-{number(ratio.high)}"
    return [
        _SHOWN[ratio.metric],
        metric_value(ratio.metric, ratio.baseline_value),
        metric_value(ratio.metric, ratio.engine_value),
        MISSING if ratio.ratio is None else f"{number(ratio.ratio)}x",
        interval,
        _answer(ratio),
    ]


def _answer(ratio: RunRatio) -> str:
    if ratio.answer is None:
        return MISSING
    if ratio.answer == "not separable" and ratio.detectable is not None:
        return f"not separable ({number(ratio.detectable)}x)"
    return ratio.answer


def _remarks(matched: Matched, letters: Mapping[str, str]) -> list[str]:
    """What a reader must know beside the numbers."""
    shown = _shown(matched)
    sides = ((matched.baseline_source, matched.baseline), (matched.engine_source, matched.engine))
    remarks = [f"{letters[name]}: {text}" for name, case in sides for text in _case_remarks(case)]
    remarks += _notes(shown)
    if any(ratio.answer == "not separable" for ratio in shown):
        remarks.append(_DETECTABLE)
    if all(case.kept_up for _, case in sides):
        remarks.append("Both kept up with the arrivals, so throughput only repeats their rate.")
    definitions = {text: None for ratio in shown for text in ratio.definitions}
    remarks += [f"Another definition: {text}" for text in definitions]
    if matched.also_different:
        remarks.append(f"They also differ in {', '.join(matched.also_different)}.")
    return remarks


def _notes(ratios: Iterable[RunRatio]) -> list[str]:
    """Each note once, with the metrics that it is about unless it is about all."""
    about: dict[str, list[str]] = {}
    shown = list(ratios)
    for ratio in shown:
        if ratio.note:
            about.setdefault(ratio.note, []).append(_SHOWN[ratio.metric])
    return [
        note if len(metrics) == len(shown) else f"{', '.join(metrics)}: {note}"
        for note, metrics in about.items()
    ]


def _failing(case: Case) -> list[str]:
    """The median over rounds of each shown latency that the requests without an end belong to."""
    return [
        f"{words} {metric_value(name, middle(case.with_failures[name]))}"
        for name, words in _SHOWN.items()
        if name in case.with_failures
    ]


def _case_remarks(case: Case) -> list[str]:
    remarks = list(case.notes)
    if case.offered is not None and case.ok is not None and case.ok < case.offered:
        remarks.append(f"{case.ok} of {case.offered} requests were ok")
    if case.with_failures:
        remarks.append(f"With those that were not ok as infinite: {', '.join(_failing(case))}")
    if case.suspect:
        remarks.append(f"SUSPECT rounds: {case.suspect} of {case.begun}")
    if case.unfinished:
        remarks.append(unfinished_note(case.unfinished, kept=not case.ended))
    return remarks
