"""An alarm rings once, soon after it is due, and the last setting counts."""

from __future__ import annotations

import asyncio
import time

import pytest

from engines.remote import alarm
from engines.remote.alarm import Alarm
from engines.remote.event_loop import run_fast

pytestmark = pytest.mark.loopback


def rung(*delays_s, wait_s=0.1) -> list[float]:
    """When it rang, in seconds from the last setting."""

    async def play():
        times = []
        clock = Alarm(asyncio.get_running_loop(), lambda: times.append(time.perf_counter()))
        for delay_s in delays_s:
            clock.set(delay_s)
        set_at_s = time.perf_counter()
        await asyncio.sleep(wait_s)
        clock.close()
        return [at_s - set_at_s for at_s in times]

    return run_fast(play())


@pytest.fixture(params=["file", "loop"])
def either(request, monkeypatch):
    if request.param == "loop":
        monkeypatch.setattr(alarm, "_open_timer", lambda: (None, None))


@pytest.mark.usefixtures("either")
def test_it_rings_once_and_not_before_its_time():
    (at_s,) = rung(0.02)
    assert 0.018 <= at_s < 0.09


@pytest.mark.usefixtures("either")
def test_the_last_setting_counts():
    (at_s,) = rung(0.001, 0.05)
    assert at_s > 0.04
    assert len(rung(5.0, 0.01)) == 1


@pytest.mark.usefixtures("either")
def test_what_is_overdue_rings_at_once():
    assert len(rung(0.0)) == 1
    assert len(rung(-1.0)) == 1


@pytest.mark.usefixtures("either")
def test_a_closed_alarm_is_silent():
    assert rung(0.05, wait_s=0.0) == []
