"""Whether a cell's numbers can be trusted: each rule is a small object, its failure a sentence.

A rule whose facts were not measured says nothing; it never guesses.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import Final

from harness.metrics.results import CellResult, Verdict
from harness.metrics.scheduler import ledger_faults, littles_law
from harness.records.schema import CellRecord
from harness.statistics import highest_expected

_LAG_LIMIT_S: Final = 0.005
_LAG_FLOOR_S: Final = 0.001
_LAG_SHARE_OF_TTFT: Final = 0.05
_NOT_OK_SHARE: Final = 0.01
_PREFIX_HIT_SHARE: Final = 0.01
_LEAST_MEASURED_S: Final = 5.0
_OTHERS_CPU_SHARE: Final = 0.10
_CLOCK_DRIFT_S: Final = 0.1
_LITTLE_TOLERANCE: Final = 0.05
_COLD_START: Final = 1.10
_COLD_START_CHANCE: Final = 0.001


@dataclass(frozen=True, slots=True)
class Evidence:
    """What rules look at. `measured_s` is summed over the rounds of this engine and load.

    `later` are the results of this engine and load in later rounds, where this is the first.
    `shared_prompt_share` is how much of the prompts an empty prefix cache may find. `output_fault`
    says what `--check-outputs` has against the cell.
    """

    record: CellRecord
    result: CellResult
    measured_s: float
    simulated: bool = False
    later: tuple[CellResult, ...] = ()
    shared_prompt_share: float = 0.0
    output_fault: str | None = None


@dataclass(frozen=True, slots=True)
class Rule:
    """`check` gives the reason for suspicion, or `None`."""

    name: str
    check: Callable[[Evidence], str | None]


def judge_cell(evidence: Evidence) -> Verdict:
    """Asks every rule."""
    reasons = tuple(reason for rule in RULES if (reason := rule.check(evidence)) is not None)
    return Verdict("SUSPECT" if reasons else "VALID", reasons)


def _client_lag(evidence: Evidence) -> str | None:
    lag = evidence.result.lag_s
    if lag is None or lag.p99 is None:
        return None
    median_ttft_s = evidence.result.ttft_s.p50
    limit_s = _LAG_LIMIT_S
    if median_ttft_s is not None:
        limit_s = min(limit_s, max(_LAG_FLOOR_S, _LAG_SHARE_OF_TTFT * median_ttft_s))
    if lag.p99 <= limit_s:
        return None
    return (
        f"the client sent late: lag p99 is {lag.p99 * 1e3:.1f} ms, the limit is "
        f"{limit_s * 1e3:.1f} ms"
    )


def _not_ok(evidence: Evidence) -> str | None:
    counts = evidence.result.counts
    bad = counts.offered - counts.ok
    if bad <= _NOT_OK_SHARE * counts.offered:
        return None
    return f"{bad} of {counts.offered} requests were not ok"


def _output_lengths(evidence: Evidence) -> str | None:
    wrong = sum(
        request.output_tokens != request.max_tokens
        if request.ignore_eos
        else request.output_tokens > request.max_tokens
        for request in evidence.record.requests
        if request.status == "ok" and request.max_tokens is not None
    )
    if not wrong:
        return None
    return f"{wrong} ok requests did not give the number of output tokens asked for"


def _prefix_hits(evidence: Evidence) -> str | None:
    """What prompts of the workload have in common may be found; more was there before the run."""
    share, common = evidence.result.prefix_hit_share, evidence.shared_prompt_share
    if share is None or share <= common + _PREFIX_HIT_SHARE:
        return None
    if not common:
        return f"{share:.1%} of prompt tokens came from a prefix cache that was meant to be cold"
    return (
        f"{share:.1%} of prompt tokens came from a prefix cache, but the prompts have only "
        f"{common:.1%} in common; the cache was meant to be empty at first"
    )


def _measured_time(evidence: Evidence) -> str | None:
    if evidence.simulated or evidence.measured_s >= _LEAST_MEASURED_S:
        return None
    return (
        f"only {evidence.measured_s:.2f} s were measured over all rounds, expected at least "
        f"{_LEAST_MEASURED_S:g} s"
    )


def _warmup(evidence: Evidence) -> str | None:
    trailer = evidence.record.trailer
    if evidence.simulated or trailer is None or trailer.warmup_requests > 0:
        return None
    return "there was no warm-up"


def _cold_start(evidence: Evidence) -> str | None:
    """Weights, kernels or caches that a warm-up did not warm make the first round a slow one.

    The rounds serve the same requests, so their mean E2E can be compared. Asked for are a tenth
    more than the later rounds' median, and more than these let happen once in a thousand times.
    """
    first, ok = evidence.result, evidence.result.counts.ok
    same = [cell for cell in evidence.later if cell.finished and cell.counts.ok == ok]
    later_s = [cell.e2e_s.mean for cell in same if cell.e2e_s.mean is not None]
    highest_s = highest_expected(later_s, _COLD_START_CHANCE)
    if evidence.simulated or not first.finished or first.e2e_s.mean is None or highest_s is None:
        return None
    times = first.e2e_s.mean / median(later_s)
    if times <= _COLD_START or first.e2e_s.mean <= highest_s:
        return None
    return (
        f"the first round was a cold one: its mean E2E is {times:.2f} times that of the "
        f"{len(later_s)} later rounds, more than their spread explains"
    )


def _others_cpu(evidence: Evidence) -> str | None:
    trailer = evidence.record.trailer
    if trailer is None or (trailer.others_cpu_share or 0.0) <= _OTHERS_CPU_SHARE:
        return None
    return f"others used or stole {trailer.others_cpu_share:.0%} of the CPU"


def _clock_drift(evidence: Evidence) -> str | None:
    trailer = evidence.record.trailer
    if trailer is None or abs(trailer.clock_drift_s or 0.0) <= _CLOCK_DRIFT_S:
        return None
    drift_ms = abs(trailer.clock_drift_s or 0.0) * 1e3
    return f"the wall clock and the monotonic clock parted by {drift_ms:.0f} ms"


def _ledger(evidence: Evidence) -> str | None:
    faults = ledger_faults(evidence.record)
    return "the ledger does not add up: " + "; ".join(faults) if faults else None


def _littles_law(evidence: Evidence) -> str | None:
    ratio = littles_law(evidence.record)
    if ratio is None or abs(ratio - 1) <= _LITTLE_TOLERANCE:
        return None
    return (
        f"Little's law is off by {abs(ratio - 1):.1%}: the engine's count of running requests "
        "does not fit their own times"
    )


def _defects(evidence: Evidence) -> str | None:
    defects = evidence.record.defects
    if not defects.total:
        return None
    parts = (
        (defects.unknown_request, "for a request that was never sent"),
        (defects.after_finish, "with tokens after a request's end"),
        (defects.finished_twice, "ending a request twice"),
        (defects.out_of_order, "going back in time"),
        (defects.not_a_number, "with a number that is none"),
        (defects.before_arrival, "with tokens before a request's arrival"),
    )
    told = ", ".join(f"{number} {what}" for number, what in parts if number)
    return f"the engine sent events that cannot be: {told}"


def _broke_down(evidence: Evidence) -> str | None:
    trailer = evidence.record.trailer
    if trailer is None:
        return "the recording was cut short"
    if trailer.error:
        return f"the engine broke down: {trailer.error}"
    return "the run was interrupted" if trailer.interrupted else None


def _certificate(evidence: Evidence) -> str | None:
    client = evidence.result.client
    certificate = client.certificate if client else None
    if certificate is None or certificate.passed is not False:
        return None
    lag_s, rate = certificate.lag_p99_s, certificate.achieved_req_s
    lag = "unknown" if lag_s is None else f"{lag_s * 1e3:.1f} ms"
    sent = "an unknown rate" if rate is None else f"{rate:.1f} requests/s"
    return (
        f"the client did not keep up when it certified itself: {sent} sent of "
        f"{certificate.asked_req_s or 0:.1f} asked, lag p99 {lag} at a server without a model"
    )


def _retries(evidence: Evidence) -> str | None:
    client = evidence.result.client
    if client is None or not client.connection_retries:
        return None
    return f"{client.connection_retries} times a request was sent again after its connection broke"


def _counts(evidence: Evidence) -> str | None:
    client = evidence.result.client
    estimated = client.counted_by.get("events", 0) if client else 0
    if not estimated:
        return None
    return f"the output tokens of {estimated} requests are estimates: the server tells no usage"


def _prompt_lengths(evidence: Evidence) -> str | None:
    client = evidence.result.client
    if client is None or not client.other_prompt_lengths:
        return None
    return (
        f"the server counted other prompt lengths than those drawn for "
        f"{client.other_prompt_lengths} requests"
    )


RULES: Final = (
    Rule("broke down or interrupted", _broke_down),
    Rule("client lag", _client_lag),
    Rule("over 1% not ok", _not_ok),
    Rule("output lengths", _output_lengths),
    Rule("prefix hits in a cold workload", _prefix_hits),
    Rule("measured time", _measured_time),
    Rule("warm-up", _warmup),
    Rule("cold start", _cold_start),
    Rule("CPU used by others", _others_cpu),
    Rule("clock drift", _clock_drift),
    Rule("ledger", _ledger),
    Rule("Little's law", _littles_law),
    Rule("impossible events", _defects),
    Rule("client's certificate", _certificate),
    Rule("connection retries", _retries),
    Rule("estimated output tokens", _counts),
    Rule("prompt lengths", _prompt_lengths),
    Rule("unequal outputs", lambda evidence: evidence.output_fault),
)
