"""The exit code, the total line, and what is said of a server whose inside is unknown."""

from __future__ import annotations

from dataclasses import replace

import pytest

from harness.locust_load.closing import (
    MISSED,
    OK,
    SUSPECT,
    describe_tally,
    judge,
    total_line,
)
from harness.locust_load.collector import Tally
from harness.locust_load.options import ARGUMENTS, read_load_options
from harness.metrics import parse_goodput, summarise_cell
from harness.metrics.results import Verdict


def options(**given: object):
    defaults = {argument.name: argument.default for argument in ARGUMENTS}
    return read_load_options(defaults | given, "http://127.0.0.1:1", 2)


@pytest.fixture
def cell(player):
    """Ten requests: `bad` failed, `cut` cut off, the others ok with a TTFT of 0.5 s."""

    def make(bad: int = 0, cut: int = 0, goodput: str | None = None):
        requests = [player.request(f"{i}", out=1) for i in range(10)]
        events = []
        for i, request in enumerate(requests):
            name = request.request_id
            if i < bad:
                events.append(player.end(0.5, name, "failed", "no"))
            elif i >= bad + cut:
                events += player.answer(name, [0.5])
        return summarise_cell(player.cell(requests, events), parse_goodput(goodput))

    return make


def test_a_run_without_failures_is_fine(cell):
    assert judge(cell(), options()) == (OK, [])


@pytest.mark.parametrize(("allowed", "code"), [("0.2", OK), ("0.1", MISSED), ("0.19", MISSED)])
def test_failures_beyond_the_ratio_are_an_error(cell, allowed, code):
    assert judge(cell(bad=2), options(max_fail_ratio=allowed))[0] == code


def test_what_the_end_cut_off_has_not_failed(cell):
    assert judge(cell(cut=9), options()) == (OK, [])


@pytest.mark.parametrize("ends", [{"bad": 10}, {"cut": 10}])
def test_nothing_ok_is_an_error_whatever_is_allowed(cell, ends):
    code, reasons = judge(cell(**ends), options(max_fail_ratio="1"))
    assert (code, reasons) == (MISSED, ["no request was ok"])


@pytest.mark.parametrize(
    ("slo", "least", "code"),
    [("ttft:600", "1", OK), ("ttft:400", "0.95", MISSED), ("ttft:400", "0", OK)],
)
def test_objectives_that_too_few_met_are_an_error(cell, slo, least, code):
    result = cell(goodput=slo)
    assert judge(result, options(goodput=slo, min_attainment=least))[0] == code


def test_a_suspect_result_is_an_error_only_when_strict(cell):
    suspect = replace(cell(), verdict=Verdict("SUSPECT", ("x",)))
    assert judge(suspect, options())[0] == OK
    assert judge(suspect, options(strict=True))[0] == SUSPECT
    assert judge(replace(suspect, verdict=Verdict("VALID")), options(strict=True))[0] == OK


def test_the_total_rate_is_over_the_whole_run_with_its_idle_end(player):
    """Ten requests in the first second, then nothing until one at the twentieth."""
    requests = [player.request(f"{i}", at=i / 10, out=1) for i in range(10)]
    requests.append(player.request("last", at=19.0, out=1))
    events = [e for r in requests for e in player.answer(r.request_id, [r.scheduled_s + 1])]
    line = total_line(summarise_cell(player.cell(requests, events), parse_goodput(None)))
    assert "11 of 11 requests ok in 20.00 s" in line
    assert "0.550 req/s, 0.6 output tok/s" in line


@pytest.mark.parametrize(
    ("workers", "whose"), [(1, "all 50 users"), (2, "all users of their load worker")]
)
def test_waits_for_a_user_are_said(workers, whose):
    tally = Tally(waits=3, longest_wait_s=1.5)
    said = describe_tally(tally, 50, workers, None, 0)["waits_for_a_user"]
    assert said == (
        f"3 requests were due while {whose} were busy, the longest for 1.500 s; "
        "their wait counts as latency"
    )
