"""The values that metrics produce, named as run.json names them. No arithmetic here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

LoadKind = Literal["open", "closed", "at_once"]


@dataclass(frozen=True, slots=True)
class Quantiles:
    """A sample's summary. `undefined` values were left out; `thin` quantiles had too few."""

    n: int
    mean: float | None = None
    std: float | None = None
    p50: float | None = None
    p95: float | None = None
    p99: float | None = None
    max: float | None = None
    undefined: int = 0
    thin: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class FailureQuantiles:
    """Quantiles over ok and not-ok requests, the latter as infinite."""

    n: int
    p50: float | Literal["inf"] | None
    p95: float | Literal["inf"] | None
    p99: float | Literal["inf"] | None


@dataclass(frozen=True, slots=True)
class Counts:
    """Requests by outcome; the outcomes add up to `offered`."""

    offered: int
    ok: int
    rejected: int
    failed: int
    timeout: int
    cancelled: int


@dataclass(frozen=True, slots=True)
class Preemptions:
    """`swapped_bytes` of keys and values went to the host or came back.

    A server elsewhere tells the total only.
    """

    total: int
    requests: int | None
    max_per_request: int | None
    swapped_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Ledger:
    """Executed positions; the parts add up to `executed`."""

    useful_prompt: int
    useful_output: int
    recomputed: int
    padding: int
    rejected_draft: int
    discarded: int
    executed: int


@dataclass(frozen=True, slots=True)
class Utilisation:
    """Mean weighted by time, and the peak."""

    mean: float
    peak: float


@dataclass(frozen=True, slots=True)
class KvLoss:
    """Positions that serve nobody, as shares of the whole pool, weighted by time.

    `inside_blocks` and `reservation` are reserved, `fragmentation` is free.
    """

    inside_blocks: float | None
    reservation: float | None
    fragmentation: float | None


@dataclass(frozen=True, slots=True)
class Scheduling:
    """Where the steps' time went, in sums; `overhead` is (schedule + pack) / step.

    `full_step_s` is the median duration of the steps that filled the token budget; `None` without
    a budget or without such a step.
    """

    schedule_s: float
    pack_s: float
    compute_s: float
    step_s: float
    overhead: float | None
    full_step_s: float | None = None


@dataclass(frozen=True, slots=True)
class SteadyWindow:
    """Tokens delivered in the window by their own time. Advisory."""

    start_s: float
    end_s: float
    output_throughput_tok_s: float


@dataclass(frozen=True, slots=True)
class Certificate:
    """How an HTTP client did against a server without a model, before the run.

    `passed` is `None` where no rate was asked for. Lags were taken at that server.
    """

    asked_req_s: float | None
    achieved_req_s: float | None
    requests: int
    failed: int
    most_streams: int
    lag_p50_s: float | None
    lag_p99_s: float | None
    lag_max_s: float | None
    server_late_s: float
    processes: int
    passed: bool | None


@dataclass(frozen=True, slots=True)
class ClientSide:
    """The client of an engine over HTTP.

    `counted_by`: requests by who said how many tokens there were. `other_prompt_lengths`: those
    whose prompt the server counted otherwise.
    """

    processes: int | None
    connection_retries: int | None
    certificate: Certificate | None
    counted_by: Mapping[str, int]
    other_prompt_lengths: int


@dataclass(frozen=True, slots=True)
class ServerSide:
    """What a server's own metrics page said: counts over the run, gauges while it ran."""

    scrapes: int
    missed_scrapes: int
    preemptions: int | None
    prefix_hit_share: float | None
    kv_usage: Utilisation | None
    running: Utilisation | None
    waiting: Utilisation | None


@dataclass(frozen=True, slots=True)
class Verdict:
    """VALID, or SUSPECT with a sentence for each reason."""

    status: Literal["VALID", "SUSPECT"]
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupResult:
    """A cell's requests, or those of one class. Rates are over the whole cell's makespan.

    `queue_s` and `lag_s` are `None` where the engine cannot know them. `with_failures` is given
    when more than 1% were not ok. `goodput_excluded` requests were cut off by the run's own end.
    """

    counts: Counts
    request_throughput_req_s: float | None
    output_throughput_tok_s: float | None
    total_throughput_tok_s: float | None
    goodput_req_s: float | None
    attainment: float | None
    goodput_excluded: int | None
    ttft_s: Quantiles
    ttft_from_send_s: Quantiles
    tpot_s: Quantiles
    itl_s: Quantiles
    e2e_s: Quantiles
    queue_s: Quantiles | None
    max_stall_s: Quantiles
    lag_s: Quantiles | None
    preemptions: Preemptions | None
    prompt_tokens: Quantiles
    output_tokens: Quantiles
    reasons: Mapping[str, Mapping[str, int]]
    with_failures: Mapping[str, FailureQuantiles] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CellResult(GroupResult):
    """One object of run.json's `results`."""

    engine: str
    spec: str
    load: str
    round: int
    verdict: Verdict | None
    makespan_s: float | None
    load_kind: LoadKind
    kept_up: bool | None
    interrupted: bool
    ledger: Ledger | None
    slot_utilisation: float | None
    kv_utilisation: Utilisation | None
    kv_pool_used: Utilisation | None
    scheduling: Scheduling | None
    steps: int | None
    steady_window: SteadyWindow | None
    prefix_hit_share: float | None
    gc_pauses: int | None
    gc_pause_s: float | None
    classes: Mapping[str, GroupResult] = field(default_factory=dict)
    broken: bool = False
    kv_loss: KvLoss | None = None
    residents: Utilisation | None = None
    client: ClientSide | None = None
    server: ServerSide | None = None

    @property
    def finished(self) -> bool:
        """Whether the cell came to its own end, neither interrupted nor broken down."""
        return not (self.interrupted or self.broken)
