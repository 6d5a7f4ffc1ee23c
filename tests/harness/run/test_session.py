"""The exit code of a run: what was ok, what is suspect, who interrupted."""

from __future__ import annotations

import signal

import pytest

from harness.records import CellTrailer
from harness.results.file import close_run
from harness.results.values import RunFile
from harness.run.interrupts import Interrupts
from harness.run.session import exit_code


def closed(player, *, end_s: float = 6.0, status: str = "ok") -> RunFile:
    """One cell, of which only its measured time can be suspect."""
    trailer = CellTrailer(end_s=end_s, warmup_requests=1)
    request = player.request("a", out=1)
    if status == "ok":
        events = player.answer("a", [end_s])
    else:
        events = [player.end(end_s, "a", status, "x")]
    player.record([request], events, trailer=trailer)
    return close_run(player.folder, {}, {})


@pytest.mark.parametrize(
    ("end_s", "strict", "code"), [(6.0, False, 0), (6.0, True, 0), (1.0, False, 0), (1.0, True, 3)]
)
def test_strict_makes_a_suspect_result_inconclusive_and_a_valid_one_stays_fine(
    player, end_s, strict, code
):
    run = closed(player, end_s=end_s)
    assert (run.results[0].verdict.status == "VALID") == (end_s == 6.0)
    assert exit_code(run, Interrupts(), strict=strict) == code


@pytest.mark.parametrize("strict", [False, True])
def test_nothing_ok_is_worse_than_suspect(player, strict):
    assert exit_code(closed(player, status="failed"), Interrupts(), strict=strict) == 1


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupt_decides_before_all_else(player, number, code):
    interrupts = Interrupts()
    interrupts.received = number
    assert exit_code(closed(player, status="failed"), interrupts, strict=True) == code
