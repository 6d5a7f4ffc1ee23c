from __future__ import annotations

from collections.abc import Callable

import pytest

from engines.api import Request
from engines.clock import VirtualClock
from workloads.sources import ClosedLoopSource, QueueSource, ScheduledSource

MakeRequests = Callable[..., list[Request]]
Source = ClosedLoopSource | QueueSource | ScheduledSource


@pytest.mark.parametrize("kind", ["scheduled", "closed", "queue"])
def test_a_stop_between_a_check_and_the_wait_is_not_lost(
    make_requests: MakeRequests, kind: str
) -> None:
    """Woken, then taken from, as an engine does each turn: the next wait still ends at once."""
    clock = VirtualClock()
    sources: dict[str, Source] = {
        "scheduled": ScheduledSource(make_requests(0.0), clock),
        "closed": ClosedLoopSource(make_requests(0.0), clock, 1),
        "queue": QueueSource(clock),
    }
    source = sources[kind]
    source.wake()
    source.take(0.0, 1)
    source.wait(5.0)
    assert clock.now() == 0.0
    source.wait(5.0)
    assert clock.now() == 5.0
