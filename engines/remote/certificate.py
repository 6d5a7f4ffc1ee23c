"""Whether this client, on this machine, can send what it is about to be asked for.

Plays the coming schedule against a server without a model that is always on time, and takes the
lag there: what is late is the client. Judges the client only; the verdict decides what follows.
"""

from __future__ import annotations

import gc
import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from typing import Any, Final
from urllib.request import ProxyHandler, build_opener

from engines.api import CbbenchError, JsonValue, Request, StepEvents
from engines.clock import WallClock
from engines.remote.client import Player, Target
from engines.remote.fed_source import FedSource
from engines.remote.noop_server import LISTENING, Pace

LAG_LIMIT_S: Final = 0.005
RATE_SHARE: Final = 0.99
SPAN_S: Final = 2.0
_FEWEST: Final = 10
_LONGEST_ANSWER: Final = 100
_HEAD_START_S: Final = 0.05
_PATIENCE_S: Final = 30.0
PACE: Final = Pace(first_token_s=0.02, gap_s=0.01)


@dataclass(frozen=True, slots=True)
class Certificate:
    """What the client did. Rates in requests a second, `None` where all was asked at once.

    `asked_req_s` is what was played: at least the load's own rate.

    Lags are from when a request was due until it had arrived at the server. `server_late_s` is how
    far that server fell behind its own pace: above a few milliseconds the machine was busy.
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

    @property
    def passed(self) -> bool | None:
        """`None` where no rate was asked for: a burst is judged by the run's own lag."""
        if self.asked_req_s is None or self.achieved_req_s is None or self.lag_p99_s is None:
            return None if self.asked_req_s is None else False
        on_time = self.lag_p99_s <= LAG_LIMIT_S
        return on_time and self.failed == 0 and self.achieved_req_s >= RATE_SHARE * self.asked_req_s

    def to_json(self) -> dict[str, JsonValue]:
        return {**asdict(self), "passed": self.passed}


MakePlayer = Callable[[Target], Player]


def certify(
    make_player: MakePlayer,
    target: Target,
    requests: Sequence[Request],
    *,
    max_concurrency: int | None,
    processes: int,
    span_s: float = SPAN_S,
    pace: Pace = PACE,
) -> Certificate:
    """Plays the densest `span_s` of the schedule of `requests`; takes about as long as they do."""
    chosen = excerpt(requests, max_concurrency, span_s)
    with noop_server(pace) as root:
        player = make_player(towards(root, target))
        try:
            sink = play_once(player, chosen)
        finally:
            player.close()
        census = ask(root, "/census")
    return read_census(census, chosen, failed=sink.failed, processes=processes)


def towards(root: str, target: Target) -> Target:
    """The same client, aimed at the no-op server; it gets no key to see."""
    options = replace(
        target.options,
        root=root,
        api_key_env=None,
        idle_timeout=_PATIENCE_S,
        grace=_PATIENCE_S,
        keepalive=2 * _PATIENCE_S,
    )
    return replace(target, options=options, key=None, stamped=True)


def excerpt(
    requests: Sequence[Request], max_concurrency: int | None, span_s: float = SPAN_S
) -> list[Request]:
    """The densest seconds, moved to a start a moment from now, with answers of a bounded length.

    Of a slow schedule a few requests, moved together: more than is asked, and soon over.
    """
    ordered = sorted(requests, key=lambda request: request.scheduled_s)
    if is_burst(ordered) and max_concurrency is not None:
        ordered = ordered[:max_concurrency]
    begin, end = densest(ordered, span_s)
    if end - begin < _FEWEST:
        begin = max(0, min(begin, len(ordered) - _FEWEST))
        end = begin + _FEWEST
    chosen = ordered[begin:end]
    first_s = chosen[0].scheduled_s
    scale = min(1.0, span_s / max(chosen[-1].scheduled_s - first_s, 1e-9))
    return [
        replace(
            request,
            scheduled_s=(request.scheduled_s - first_s) * scale + _HEAD_START_S,
            max_tokens=min(request.max_tokens or _LONGEST_ANSWER, _LONGEST_ANSWER),
        )
        for request in chosen
    ]


def densest(ordered: Sequence[Request], span_s: float) -> tuple[int, int]:
    """Begin and end of the `span_s` with the most requests; of equals the first."""
    best, end = (0, 0), 0
    for begin, first in enumerate(ordered):
        while end < len(ordered) and ordered[end].scheduled_s - first.scheduled_s <= span_s:
            end += 1
        if end - begin > best[1] - best[0]:
            best = begin, end
    return best


def is_burst(requests: Sequence[Request]) -> bool:
    return requests[0].scheduled_s == requests[-1].scheduled_s


class CountingSink:
    """Counts what did not end well."""

    def __init__(self) -> None:
        self.failed = 0

    def emit(self, events: StepEvents) -> None:
        self.failed += sum(finish.status != "ok" for finish in events.finished)


def play_once(player: Player, requests: Sequence[Request]) -> CountingSink:
    """The whole schedule, on connections that stand before it begins."""
    player.prepare(requests)
    player.warm(len(requests))
    clock, sink = WallClock(), CountingSink()
    source = FedSource(clock)
    source.feed(requests)
    source.finish()
    gc.collect()
    gc.freeze()  # as before each measured cell
    clock.restart()
    player.run(source, sink, clock)
    return sink


def read_census(
    census: dict[str, Any], requests: Sequence[Request], *, failed: int, processes: int
) -> Certificate:
    """The server's own count against the schedule."""
    span_s = requests[-1].scheduled_s - requests[0].scheduled_s
    lags_s, arrivals_s = sorted(census["lags_s"]), sorted(census["arrivals_s"])
    seen_s = arrivals_s[-1] - arrivals_s[0] if arrivals_s else 0.0
    count = len(requests)
    return Certificate(
        asked_req_s=(count - 1) / span_s if span_s > 0 else None,
        achieved_req_s=(len(arrivals_s) - 1) / seen_s if span_s > 0 and seen_s > 0 else None,
        requests=count,
        failed=failed,
        most_streams=census["most_open_streams"],
        lag_p50_s=_quantile(lags_s, 0.5),
        lag_p99_s=_quantile(lags_s, 0.99),
        lag_max_s=lags_s[-1] if lags_s else None,
        server_late_s=census["late_s"],
        processes=processes,
    )


@contextmanager
def noop_server(pace: Pace) -> Iterator[str]:
    """A no-op server in a process of its own, for the time being; its address.

    It ends when its standard input does, so it cannot outlive us.
    """
    command = [
        *(sys.executable, "-m", "engines.remote.noop_server", "--until-stdin-ends"),
        *("--first-token-ms", str(pace.first_token_s * 1e3), "--gap-ms", str(pace.gap_s * 1e3)),
    ]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line.startswith(LISTENING):
            raise CbbenchError(
                "the client cannot certify itself: its no-op server did not start "
                f"(exit code {process.wait()}); give certify=false to go without"
            )
        yield f"http://127.0.0.1:{line.removeprefix(LISTENING).strip()}"


def ask(root: str, path: str) -> dict[str, Any]:
    """JSON from the no-op server; no proxy is asked."""
    with build_opener(ProxyHandler({})).open(root + path, timeout=10) as response:
        value: dict[str, Any] = json.load(response)
    return value


def _quantile(ordered: Sequence[float], q: float) -> float | None:
    """Linear interpolation; `None` of nothing."""
    if not ordered:
        return None
    place = q * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)
