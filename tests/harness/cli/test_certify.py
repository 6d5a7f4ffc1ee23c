"""`cbbench certify`: a ladder of rates against a server without a model."""

from __future__ import annotations

from dataclasses import replace

import pytest

from engines.remote.certificate import Certificate
from harness.show.certificates import TITLES, certificate_line, summary_line

GOOD = Certificate(50.0, 50.1, 200, 0, 60, 0.0002, 0.001, 0.0045, 0.0001, 1)
LATE = replace(GOOD, asked_req_s=100.0, achieved_req_s=100.0, lag_p99_s=0.2)


@pytest.mark.loopback
def test_rates_are_tried_and_told(call):
    done = call("certify", "--rates", "20,40", "--seconds", "0.3", "--tokens", "5")
    lines = done.stdout.splitlines()
    assert lines[0] == TITLES
    assert lines[1].split()[0] == "20.0"
    assert lines[-1].startswith(("highest rate kept up with", "no rate was kept up with"))
    assert done.returncode == (0 if "highest" in lines[-1] else 1)


@pytest.mark.parametrize(
    ("options", "word"),
    [
        (["--rates", "10,x"], "--rates is 'x'; expected a finite number > 0"),
        (["--tokens", "101"], "a whole number from 1 to 100"),
        (["--client-processes", "0"], "a whole number >= 1"),
    ],
)
def test_mistakes_are_told(call, options, word):
    done = call("certify", *options)
    assert done.returncode == 2
    assert word in done.stderr


def test_the_highest_rate_that_passed_is_the_answer():
    assert summary_line([GOOD, LATE]).startswith("highest rate kept up with: 50.0 requests")
    assert "higher rates were not tried" in summary_line([GOOD])
    assert summary_line([LATE]).startswith("no rate was kept up with")


def test_a_line_stands_under_its_titles():
    line = certificate_line(replace(GOOD, failed=3))
    assert line.startswith(f"{'50.0':>12}{'50.1':>12}{'0.200':>12}")
    assert line.endswith("3 failed")
