"""What the report says of engines over HTTP: client, server, and what HTTP adds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median
from typing import Final

from harness.metrics.results import CellResult, Utilisation
from harness.results.values import RunFile, TransportCost
from harness.show.report.markup import markdown_table
from harness.show.report.words import MISSING, code, milliseconds, number, percent, plain

Number = Callable[[CellResult], float | None]
_CLIENT_TITLES: Final = (
    "engine, load",
    "certified at req/s",
    "sent req/s",
    "lag p50 ms",
    "lag p99 ms",
    "streams at once",
    "processes",
    "sent again",
    "tokens counted by",
)
_SERVER_TITLES: Final = (
    "engine, load",
    "preemptions",
    "KV use, mean",
    "KV use, peak",
    "running, mean",
    "running, peak",
    "waiting, mean",
    "waiting, peak",
    "prefix hits",
    "scrapes",
)


def over_http_lines(run: RunFile) -> list[str]:
    """The client and what servers say of themselves; nothing where all engines were in process."""
    cells = _cells(run)
    clients = [
        [f"{code(label)}, {code(load)}", *_client(found)]
        for load, label, found in cells
        if any(cell.client for cell in found)
    ]
    if not clients:
        return []
    servers = [
        [f"{code(label)}, {code(load)}", *_server(found)]
        for load, label, found in cells
        if any(cell.server for cell in found)
    ]
    is_certified = any(cell.client and cell.client.certificate for cell in run.results)
    how = ", certified against a server without a model before the run" if is_certified else ""
    lines = ["## Over HTTP", "", f"The client{how}:", "", *markdown_table(_CLIENT_TITLES, clients)]
    if servers:
        intro = "What the servers' own metrics said while the runs went on:"
        lines += ["", intro, "", *markdown_table(_SERVER_TITLES, servers)]
    return lines


def transport_sentence(cost: TransportCost) -> str:
    """`HTTP added 1.9 ms to the median TTFT of continuous, ...`."""
    rounds = "one round" if cost.rounds == 1 else f"median of {cost.rounds} rounds"
    return (
        f"At load {plain(cost.load)} HTTP added {_ms(cost.ttft_p50_s)} to the median TTFT of "
        f"{plain(cost.engine)}, {_ms(cost.tpot_p50_s)} to its median TPOT and "
        f"{_ms(cost.e2e_p50_s)} to its median E2E, and changed its output by "
        f"{_signed(cost.output_throughput_tok_s)} tokens per second "
        f"({plain(cost.served)} against {plain(cost.engine)}, {rounds})."
    )


def _client(cells: Sequence[CellResult]) -> list[str]:
    clients = [cell.client for cell in cells if cell.client is not None]
    certificates = [client.certificate for client in clients if client.certificate is not None]
    first = certificates[0] if certificates else None
    retries = [client.connection_retries for client in clients]
    counted: dict[str, int] = {}
    for client in clients:
        for name, requests in client.counted_by.items():
            counted[name] = counted.get(name, 0) + requests
    return [
        "all at once" if first and first.asked_req_s is None else number(_of(first, "asked_req_s")),
        number(_of(first, "achieved_req_s")),
        milliseconds(_of(first, "lag_p50_s")),
        milliseconds(_of(first, "lag_p99_s")),
        MISSING if first is None else str(first.most_streams),
        str(clients[0].processes or MISSING),
        MISSING if None in retries else str(sum(value or 0 for value in retries)),
        ", ".join(f"{name} {requests}" for name, requests in counted.items()) or MISSING,
    ]


def _server(cells: Sequence[CellResult]) -> list[str]:
    servers = [cell.server for cell in cells if cell.server is not None]

    def middle(values: Sequence[float | None]) -> float | None:
        known = [value for value in values if value is not None]
        return median(known) if known else None

    def part(name: str, which: str) -> float | None:
        gauges: list[Utilisation | None] = [getattr(server, name) for server in servers]
        return middle([getattr(gauge, which) for gauge in gauges if gauge is not None])

    preemptions = middle([server.preemptions for server in servers])
    return [
        MISSING if preemptions is None else f"{preemptions:.0f}",
        percent(part("kv_usage", "mean")),
        percent(part("kv_usage", "peak")),
        number(part("running", "mean")),
        number(part("running", "peak")),
        number(part("waiting", "mean")),
        number(part("waiting", "peak")),
        percent(middle([server.prefix_hit_share for server in servers])),
        str(sum(server.scrapes for server in servers)),
    ]


def _cells(run: RunFile) -> list[tuple[str, str, list[CellResult]]]:
    return [
        (load, label, cells)
        for load in run.loads()
        for label in run.labels()
        if (cells := run.cells(label, load))
    ]


def _of(certificate: object, name: str) -> float | None:
    value: float | None = None if certificate is None else getattr(certificate, name)
    return value


def _ms(seconds: float | None) -> str:
    return MISSING if seconds is None else f"{milliseconds(seconds)} ms"


def _signed(value: float | None) -> str:
    if value is None:
        return MISSING
    return ("+" if value > 0 else "") + number(value)
