"""What is known of a client over HTTP and of the server behind it.

Everything is `None` for engines in process, and where a server does not tell.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from harness.metrics.results import (
    Certificate,
    ClientSide,
    Preemptions,
    ServerSide,
    Utilisation,
)
from harness.records.schema import CellRecord


def client_side(record: CellRecord) -> ClientSide | None:
    """How the client stood its certification, and how its tokens were counted."""
    told = _told(record, "client")
    if told is None:
        return None
    certificate = told.get("certificate")
    counted = Counter(r.stats.counted_by for r in record.requests if r.stats.counted_by)
    return ClientSide(
        processes=told.get("processes"),
        connection_retries=told.get("connection_retries"),
        certificate=Certificate(**certificate) if certificate else None,
        counted_by=dict(sorted(counted.items())),
        other_prompt_lengths=sum(
            r.stats.served_prompt_tokens not in (None, r.prompt_tokens) for r in record.requests
        ),
    )


def server_side(record: CellRecord) -> ServerSide | None:
    """What the server's own metrics said of the run."""
    told = _told(record, "server")
    if told is None:
        return None
    return ServerSide(
        scrapes=told["scrapes"],
        missed_scrapes=told["missed_scrapes"],
        preemptions=told["preemptions"],
        prefix_hit_share=_share(told["prefix_hit_tokens"], told["prefix_query_tokens"]),
        kv_usage=_utilisation(told["kv_usage"]),
        running=_utilisation(told["running"]),
        waiting=_utilisation(told["waiting"]),
    )


def server_preemptions(record: CellRecord) -> Preemptions | None:
    """A server tells how many there were, and not of which requests."""
    server = server_side(record)
    if server is None or server.preemptions is None:
        return None
    return Preemptions(server.preemptions, None, None)


def _told(record: CellRecord, side: str) -> Mapping[str, Any] | None:
    remote = record.trailer.remote if record.trailer else None
    value = remote.get(side) if remote else None
    return value if isinstance(value, Mapping) else None


def _share(part: int | None, whole: int | None) -> float | None:
    return part / whole if part is not None and whole else None


def _utilisation(value: Mapping[str, float] | None) -> Utilisation | None:
    return None if value is None else Utilisation(value["mean"], value["peak"])
