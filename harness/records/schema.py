"""What is written down about one cell: one engine, one load, one round.

A cell is raw facts only (times, counts, the engine's own step rows). Nothing is derived here but
what the facts say by themselves; every metric has its definition in `harness.metrics`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

from engines.api import (
    EngineInfo,
    FinishReason,
    JsonValue,
    RequestId,
    RequestStats,
    Status,
    StepRow,
)

RAW_FOLDER: Final = "raw"
RAW_VERSION: Final = 1
STATUSES: Final[tuple[Status, ...]] = ("ok", "rejected", "failed", "timeout", "cancelled")
_LONGEST_NAME_PART: Final = 80


@dataclass(frozen=True, slots=True, order=True)
class CellKey:
    """Names one cell: the engine's label, the load's name, the round counted from 1."""

    engine: str
    load: str
    round: int

    @property
    def file_name(self) -> str:
        """The raw file's name: safe on any disk, different for different keys."""
        return f"{_name_part(self.engine)}.{_name_part(self.load)}.{self.round}.jsonl"


@dataclass(frozen=True, slots=True)
class CellTrailer:
    """What is known only when a cell has ended. `None` means that it was not measured.

    `others_cpu_share` (0 to 1) is the part of the machine's CPU time that other processes used or
    that was stolen. `clock_drift_s` is how far wall and monotonic time parted during the cell.
    `error` is a sentence when the engine broke down. `remote` is what an engine that sends its
    requests elsewhere saw of its client and of the server.
    """

    end_s: float
    interrupted: bool = False
    warmup_requests: int = 0
    others_cpu_share: float | None = None
    clock_drift_s: float | None = None
    gc_pauses: int = 0
    gc_pause_s: float = 0.0
    error: str = ""
    remote: Mapping[str, JsonValue] | None = None


@dataclass(frozen=True, slots=True)
class CellSnapshot:
    """A cell while it runs, for who shows it. Picklable; says nothing that a report relies on.

    `done` counts ended requests of any status. `running` and `waiting` are the engine's own
    counts where it reports steps, else what the recorder can tell. `ttft_p95_s` covers the
    requests that have a first token.
    """

    key: CellKey
    elapsed_s: float
    total: int
    done: int
    counts: Mapping[Status, int]
    running: int
    waiting: int
    output_tokens: int
    output_tok_s: float | None
    ttft_p95_s: float | None
    kv_used: float | None
    slots: int | None
    preemptions: int
    steps: int
    defects: int = 0


@dataclass(frozen=True, slots=True)
class Defects:
    """Events that a sound engine never sends, counted instead of crashing on them."""

    unknown_request: int = 0
    after_finish: int = 0
    finished_twice: int = 0
    out_of_order: int = 0
    not_a_number: int = 0
    before_arrival: int = 0

    @property
    def total(self) -> int:
        return (
            self.unknown_request
            + self.after_finish
            + self.finished_twice
            + self.out_of_order
            + self.not_a_number
            + self.before_arrival
        )


@dataclass(frozen=True, slots=True)
class RequestRecord:
    """One request as it went. Times in seconds from t0.

    At `token_times_s[i]` came `token_counts[i]` tokens. `output_ids` only when outputs were saved.
    """

    request_id: RequestId
    label: str
    session: str | None
    prompt_tokens: int
    max_tokens: int | None
    ignore_eos: bool
    scheduled_s: float
    status: Status
    finish_reason: FinishReason | None
    reason: str
    stats: RequestStats
    token_times_s: tuple[float, ...] = ()
    token_counts: tuple[int, ...] = ()
    output_ids: tuple[int, ...] | None = None
    arrived: bool = True  # of a closed loop that was cut short: whether it was handed out

    @property
    def output_tokens(self) -> int:
        return sum(self.token_counts)

    @property
    def first_token_s(self) -> float | None:
        return self.token_times_s[0] if self.token_times_s else None

    @property
    def end_s(self) -> float | None:
        """Delivery of the last token."""
        return self.token_times_s[-1] if self.token_times_s else None


@dataclass(frozen=True, slots=True)
class CellRecord:
    """All that was recorded of a cell. Without a trailer the recording was cut short.

    `end_s` is the last instant seen. `closed_loop` says that arrivals were set by completions.
    """

    key: CellKey
    spec: str
    info: EngineInfo
    requests: tuple[RequestRecord, ...]
    steps: tuple[StepRow, ...]
    trailer: CellTrailer | None
    defects: Defects
    end_s: float
    closed_loop: bool = False

    @property
    def interrupted(self) -> bool:
        return self.trailer is None or self.trailer.interrupted

    @property
    def broken(self) -> bool:
        """Whether the engine broke down."""
        return self.trailer is not None and bool(self.trailer.error)


def _name_part(text: str) -> str:
    safe = quote(text, safe="").replace(".", "%2E").replace("~", "%7E")
    if len(safe) <= _LONGEST_NAME_PART:
        return safe or "%00"
    return f"{safe[:_LONGEST_NAME_PART]}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"
