"""The highest rate that this machine's client can send: certifications one above the other.

The load is the usual one of a serving benchmark at an even rate: streams of so many tokens, a
chunk each, paced by a server without a model.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from engines.api import Request
from engines.remote.certificate import Certificate, certify
from engines.remote.client import Client, Player, Target
from engines.remote.client_processes import ClientProcesses
from engines.remote.noop_server import Pace
from engines.remote.open_files import allow_open_files
from engines.remote.options import RemoteOptions

_MOST_STREAMS = 4096


@dataclass(frozen=True, slots=True)
class Rungs:
    """What is tried: rates in requests a second, each for `seconds`."""

    rates: Sequence[float]
    seconds: float
    tokens: int
    prompt_tokens: int
    gap_s: float
    processes: int


def climb(rungs: Rungs) -> Iterator[Certificate]:
    """One certificate a rate, in the order given, up to the first that does not pass."""
    limit = allow_open_files(_MOST_STREAMS)
    target = Target(RemoteOptions("http://127.0.0.1"), "none", "tiny", limit)

    def make_player(aimed: Target) -> Player:
        return Client(aimed) if rungs.processes == 1 else ClientProcesses(aimed, rungs.processes)

    for rate in rungs.rates:
        found = certify(
            make_player,
            target,
            evenly(rungs, rate),
            max_concurrency=None,
            processes=rungs.processes,
            span_s=rungs.seconds,
            pace=Pace(2 * rungs.gap_s, rungs.gap_s),
        )
        yield found
        if not found.passed:
            return


def evenly(rungs: Rungs, rate: float) -> list[Request]:
    """Requests at an even rate; the ids of their prompts mean nothing."""
    prompt = tuple(range(100, 100 + rungs.prompt_tokens))
    count = max(2, round(rate * rungs.seconds))
    return [Request(f"{i:06d}", prompt, rungs.tokens, scheduled_s=i / rate) for i in range(count)]
