"""The answer in sentences: what was found, how sure it is, and what speaks against it.

Below saturation engines are compared by latency, at saturation by throughput. Batching and
memory are credited only with the comparison in which nothing else differs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from harness.results.pairs import Pair, choose_pairs
from harness.results.saturation import kept_up, saturated
from harness.results.values import Comparison, Kind, RunFile
from harness.show.report.over_http import transport_sentence
from harness.show.report.split import split_text, whole_pairs
from harness.show.report.words import METRIC_WORDS, metric_value, number, plain

_SATURATED: Final = ("output_throughput_tok_s", "ttft_s.p95")
_BELOW: Final = ("ttft_s.p95", "e2e_s.p95")
_CREDITED: Final = ("scheduler", "memory")
_WORTH_TELLING: Final = 1.05
_NOT_OK_TOLD_ABOVE: Final = 0.01
# Below saturation these only repeat the offered rate.
OFFERED_RATE_METRICS: Final = ("output_throughput_tok_s", "request_throughput_req_s")


def finding(run: RunFile) -> list[str]:
    """Paragraphs of plain text; labels stand in it as they are."""
    if not any(result.counts.ok for result in run.results):
        return [_nothing_ok(run)]
    paragraphs = [_simulated()] if run.settings.get("simulated") else []
    pairs = _told_pairs(run)
    for load in run.loads():
        paragraphs.extend(filter(None, (_at_load(run, load, pair) for pair in pairs)))
    paragraphs.extend(filter(None, (_beside(pair, alone=len(pairs) == 1) for pair in pairs)))
    paragraphs.extend(map(transport_sentence, run.transport))
    paragraphs.extend(f"{plain(remark)}." for remark in run.settings.get("remarks") or ())
    if not pairs:
        paragraphs.append("Only one engine was run, so there is nothing to compare it with.")
    return [*paragraphs, *filter(None, (_credit(run, pairs), _trust(run)))]


def ratio_text(comparison: Comparison) -> str:
    """The ratio with its interval and rounds, or the reason why there is none."""
    if comparison.ratio is None:
        return f"no ratio ({comparison.note})"
    text = f"{number(comparison.ratio)}x"
    if comparison.low is None or comparison.high is None:
        return f"{text} ({comparison.note})"
    return (
        f"{text} (95% interval {number(comparison.low)}-{number(comparison.high)}, "
        f"{comparison.rounds} rounds{'; ' if comparison.note else ''}{comparison.note})"
    )


def _told_pairs(run: RunFile) -> list[Pair]:
    """Whole gains that can be taken apart, pairs with one cause, and who is in none of them."""
    pairs = _pairs(run)
    told = [*whole_pairs(pairs), *(p for p in pairs if p.kind in _CREDITED)]
    names = {name for pair in told for name in (pair.baseline, pair.engine)}
    return [*told, *(p for p in pairs if p not in told and p.engine not in names)]


def _pairs(run: RunFile) -> list[Pair]:
    return choose_pairs(run.labels(), run.engines, run.settings.get("baseline"))


def _at_load(run: RunFile, load: str, pair: Pair) -> str:
    own = _compared(run, load, pair)
    if not own:
        return ""
    is_saturated = saturated(run, load, (pair.baseline, pair.engine))
    state = _load_state(run, load, pair, is_saturated)
    names = _SATURATED if is_saturated else _BELOW
    told = [_told(own[name]) for name in names if name in own]
    fair = [
        item for item in own.values() if is_saturated or item.metric not in OFFERED_RATE_METRICS
    ]
    lost = [_lost(run, load, label) for label in (pair.baseline, pair.engine)]
    split = split_text(
        pair,
        _pairs(run) if pair.kind == "engines" else (),
        lambda part: _compared(run, load, part).get(names[0]),
        ratio_text,
        plain,
    )
    told[1:1] = [split]
    return " ".join(filter(None, [state, *told, _against(fair, pair), *lost]))


def _compared(run: RunFile, load: str, pair: Pair) -> dict[str, Comparison]:
    """The comparisons of all requests together, by metric."""
    return {
        item.metric: item
        for item in run.comparisons
        if (item.load, item.request_class) == (load, None)
        and (item.baseline, item.engine) == (pair.baseline, pair.engine)
    }


def _beside(pair: Pair, *, alone: bool) -> str:
    """What a pair without one cause differs in, of what both have."""
    if pair.kind != "engines" or not pair.also_different:
        return ""
    who = "They" if alone else f"{plain(pair.engine)} and {plain(pair.baseline)}"
    return f"{who} also differ in {plain(', '.join(pair.also_different))}."


def _lost(run: RunFile, load: str, label: str) -> str:
    """A warning that latencies leave out requests which did not end ok."""
    cells = run.cells(label, load)
    offered = sum(cell.counts.offered for cell in cells)
    bad = offered - sum(cell.counts.ok for cell in cells)
    if bad <= _NOT_OK_TOLD_ABOVE * offered:
        return ""
    return (
        f"{bad} of {offered} requests of {plain(label)} were not ok; its latencies leave them out, "
        "see the quantiles that count them as infinite."
    )


def _load_state(run: RunFile, load: str, pair: Pair, is_saturated: bool) -> str:
    start = f"At {plain(load)}, {plain(pair.engine)} against {plain(pair.baseline)}"
    answers = {label: kept_up(run, load, label) for label in (pair.baseline, pair.engine)}
    if not is_saturated and None in answers.values():
        return f"{start} (too few requests to tell whether they kept up with the arrivals):"
    if not is_saturated:
        return f"{start} (both kept up with the arrivals, so latency decides):"
    behind = [plain(label) for label, answer in answers.items() if answer is False]
    if behind:
        return f"{start} ({' and '.join(behind)} did not keep up with the arrivals):"
    return f"{start} (saturated, so throughput decides, beside p95 latency):"


def _told(comparison: Comparison) -> str:
    words = METRIC_WORDS.get(comparison.metric, comparison.metric)
    values = (
        f"{metric_value(comparison.metric, comparison.baseline_value)} became "
        f"{metric_value(comparison.metric, comparison.engine_value)}"
    )
    judged = {
        "better": "better",
        "worse": "worse",
        "not separable": "not separable from no difference",
        None: "not judged",
    }[comparison.answer]
    text = f"{words}: {values}, {ratio_text(comparison)}, {judged}"
    if comparison.answer == "not separable" and comparison.detectable is not None:
        text += f"; only an effect beyond {number(comparison.detectable)}x would have shown"
    return text + "."


def _against(comparisons: Iterable[Comparison], pair: Pair) -> str:
    """Every metric in which the engine did worse, whatever the headline."""
    worse = [item for item in comparisons if _went_wrong(item)]
    name = plain(pair.engine)
    if not worse:
        return f"Nothing measured went clearly against {name}."
    told = "; ".join(
        f"{METRIC_WORDS.get(item.metric, item.metric)} {ratio_text(item)}" for item in worse
    )
    return f"Against {name}: {told}."


def _went_wrong(comparison: Comparison) -> bool:
    if comparison.answer is not None or comparison.ratio is None:
        return comparison.answer == "worse"
    if comparison.direction == "lower":
        return comparison.ratio > _WORTH_TELLING
    return comparison.ratio < 1 / _WORTH_TELLING


def _credit(run: RunFile, pairs: Sequence[Pair]) -> str:
    """What may be credited with a difference, and what may not."""
    told = [_credit_to(kind, pairs) for kind in _CREDITED]
    if not any(told):
        told = [_no_credit_to_batching(run, pairs)]
    return " ".join(filter(None, [*told, _no_credit_to_memory(run, pairs)]))


def _no_credit_to_batching(run: RunFile, pairs: Sequence[Pair]) -> str:
    names = {engine.name for engine in run.engines.values()}
    policies = {engine.settings.get("policy") for engine in run.engines.values()}
    if names & {"static", "dynamic", "sequential"} and "chunked" in policies:
        return (
            "This mixes runtime and scheduler: generate and the step loop differ in more than "
            "batching. To see what the scheduler alone does, add loop[policy=static] to --engines."
        )
    if len(pairs) == 0:
        return ""
    return "No pair here differs in the scheduler alone, so nothing is credited to batching."


def _credit_to(kind: Kind, pairs: Sequence[Pair]) -> str:
    own = [pair for pair in pairs if pair.kind == kind]
    pure = [pair for pair in own if not pair.also_different]
    what, cause = {
        "scheduler": ("share runtime and memory and differ in the policy", "scheduler's"),
        "memory": ("share runtime and policy and differ in how memory is allocated", "memory's"),
    }[kind]
    told = []
    if pure:
        named = ", ".join(f"{plain(pair.engine)} and {plain(pair.baseline)}" for pair in pure)
        told.append(f"{named} {what}: a difference between them that holds is the {cause}.")
    told += [
        f"{plain(pair.engine)} and {plain(pair.baseline)} {what}, but also in "
        f"{plain(', '.join(pair.also_different))}, so not all of a difference is the {cause}."
        for pair in own
        if pair.also_different
    ]
    return " ".join(told)


def _no_credit_to_memory(run: RunFile, pairs: Sequence[Pair]) -> str:
    """Said where loops give memory out in different ways and no pair shows what that alone does."""
    known = {engine.settings.get("allocator") for engine in run.engines.values()}
    allocators = sorted(str(allocator) for allocator in known if allocator is not None)
    if len(allocators) < 2 or any(pair.kind == "memory" for pair in pairs):
        return ""
    return (
        f"Memory is allocated in different ways here ({' and '.join(allocators)}), but no pair "
        "differs in that alone, so nothing is credited to the memory. To see what it does, add to "
        "--engines the engine with allocator=contiguous once more with allocator=paged."
    )


def _trust(run: RunFile) -> str:
    suspect = [r for r in run.results if r.verdict and r.verdict.status == "SUSPECT"]
    if not suspect:
        return "Every cell's verdict is VALID."
    return (
        f"{len(suspect)} of {len(run.results)} cells are SUSPECT; do not rely on their numbers "
        "before reading the reasons under Verdict."
    )


def _simulated() -> str:
    return (
        "This is a simulation in virtual time: a cost model stands for the hardware, and static "
        "and dynamic stand for loop[policy=static] and loop[policy=window]."
    )


def _nothing_ok(run: RunFile) -> str:
    offered = sum(result.counts.offered for result in run.results)
    reasons: dict[str, int] = {}
    for result in run.results:
        for by_reason in result.reasons.values():
            for reason, times in by_reason.items():
                reasons[reason] = reasons.get(reason, 0) + times
    told = "; ".join(f"{times} times: {plain(reason)}" for reason, times in reasons.items())
    return f"Nothing was ok: 0 of {offered} requests succeeded. {told}".strip()
