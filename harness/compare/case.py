"""What a finished run says, in the form that runs are compared in. Values only.

Whoever made the result file, cbbench or another tool, it becomes one `Source` of `Case`s with
METRICS.md's names and units.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Values = tuple[float | None, ...]
Rate = float | Literal["inf"] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One engine at one load. `values[metric][i]` is that of `rounds[i]`, `None` where unknown.

    `facts` are settings in force, for telling what else differs. `definitions` says of a metric
    how it differs from cbbench's own; it is empty for cbbench's results. `unfinished` rounds are
    not among `rounds` unless no round `ended`; in the `broken` ones of them the engine broke down.
    `ok_share` is of the requests of `rounds` alone. `with_failures` has, where more than 1% were
    not ok, latencies with those as infinite. `kept_up` is `None` where it cannot be told.
    """

    engine: str
    load: str
    request_rate: Rate
    max_concurrency: int | None
    rounds: tuple[int, ...]
    values: Mapping[str, Values]
    offered: int | None
    ok: int | None
    suspect: int = 0
    unfinished: int = 0
    broken: int = 0
    ended: bool = True
    kept_up: bool | None = None
    ok_share: float | None = None
    with_failures: Mapping[str, Values] = field(default_factory=dict)
    facts: Mapping[str, str] = field(default_factory=dict)
    definitions: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def begun(self) -> int:
        """How many rounds there were, whether they ended or not."""
        return len(self.rounds) + (self.unfinished if self.ended else 0)


@dataclass(frozen=True, slots=True)
class Source:
    """One result. Without a `workload_hash` nobody can say that two had the same requests.

    `failures` has a sentence for each engine that could not be started, or that failed later.
    """

    name: str
    tool: str
    workload: str | None
    workload_hash: str | None
    cases: tuple[Case, ...]
    facts: Mapping[str, str] = field(default_factory=dict)
    goodput: str | None = None
    failures: Mapping[str, str] = field(default_factory=dict)
