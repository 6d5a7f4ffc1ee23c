"""A client's certification: what it plays, what it counts, and that a slow client fails."""

from __future__ import annotations

import asyncio
import time
from itertools import pairwise

import pytest

from engines.api import Request
from engines.remote.certificate import (
    Certificate,
    ask,
    certify,
    excerpt,
    noop_server,
    read_census,
)
from engines.remote.client import Client, Target
from engines.remote.noop_server import Census, Pace, Pacer, grid_lags_s
from engines.remote.options import RemoteOptions


def requests(count, gap_s=0.0, max_tokens=5):
    return [Request(f"r{i}", (9, 10), max_tokens, scheduled_s=i * gap_s) for i in range(count)]


def target():
    return Target(RemoteOptions("http://127.0.0.1:9"), "m", "tiny", limit=100, key="sk-secret")


def test_seconds_of_the_schedule_are_played_at_their_own_pace():
    chosen = excerpt(requests(100, 0.1, max_tokens=5000), None)
    assert len(chosen) == 21
    gaps = {round(b.scheduled_s - a.scheduled_s, 9) for a, b in pairwise(chosen)}
    assert gaps == {0.1}
    assert {request.max_tokens for request in chosen} == {100}


def test_the_densest_seconds_are_played_wherever_they_are():
    quiet = requests(12, 1 / 6)
    rush = [Request(f"s{i}", (9,), 5, scheduled_s=30 + i / 300) for i in range(900)]
    after = [Request(f"t{i}", (9,), 5, scheduled_s=40 + i) for i in range(5)]
    chosen = excerpt([*quiet, *rush, *after], None)
    assert len(chosen) == pytest.approx(600, abs=2)
    assert {request.request_id[0] for request in chosen} == {"s"}
    span_s = chosen[-1].scheduled_s - chosen[0].scheduled_s
    assert (len(chosen) - 1) / span_s == pytest.approx(300)
    assert chosen[0].scheduled_s == pytest.approx(0.05)


def test_of_a_slow_schedules_end_a_few_requests_are_played_too():
    slow = [Request(f"r{i}", (9,), 5, scheduled_s=i * 10) for i in range(20)]
    last = [Request(f"s{i}", (9,), 5, scheduled_s=300 + i * 0.1) for i in range(3)]
    chosen = excerpt([*slow, *last], None)
    assert [request.request_id for request in chosen[-3:]] == ["s0", "s1", "s2"]
    assert len(chosen) == 10
    assert chosen[-1].scheduled_s - chosen[0].scheduled_s == pytest.approx(2.0)


def test_of_a_slow_schedule_the_first_requests_are_played_in_the_same_time():
    chosen = excerpt(requests(30, 4.0), None)
    assert len(chosen) == 10
    assert chosen[-1].scheduled_s - chosen[0].scheduled_s == pytest.approx(2.0)
    assert len(excerpt(requests(3, 4.0), None)) == 3


def test_of_a_closed_loop_the_first_wave_is_played():
    assert len(excerpt(requests(50), 8)) == 8
    assert len(excerpt(requests(50), None)) == 50


def census(lags_s, gap_s=0.1, late_s=0.0):
    arrivals_s = [5.0 + i * gap_s + lag_s for i, lag_s in enumerate(lags_s)]
    return {"lags_s": lags_s, "arrivals_s": arrivals_s, "most_open_streams": 3, "late_s": late_s}


def certificate(lags_s, gap_s=0.1, failed=0, seen_gap_s=None) -> Certificate:
    played = requests(len(lags_s), gap_s)
    seen = census(lags_s, seen_gap_s or gap_s or 0.001)
    return read_census(seen, played, failed=failed, processes=1)


def test_a_client_on_time_passes():
    found = certificate([0.001] * 11)
    assert found.passed is True
    assert (found.asked_req_s, found.achieved_req_s) == (pytest.approx(10), pytest.approx(10))
    assert (found.lag_p50_s, found.lag_max_s) == (0.001, 0.001)


def test_a_client_that_is_late_or_slow_or_fails_does_not_pass():
    assert certificate([0.001] * 9 + [0.02, 0.02]).passed is False
    assert certificate([0.001] * 11, seen_gap_s=0.11).passed is False
    assert certificate([0.001] * 11, failed=1).passed is False
    assert certificate([0.0], gap_s=1.0).passed is None
    assert read_census(census([]), requests(3, 0.1), failed=3, processes=1).passed is False


def test_a_burst_is_not_judged():
    found = certificate([0.001, 0.02, 0.04], gap_s=0.0)
    assert (found.asked_req_s, found.achieved_req_s, found.passed) == (None, None, None)
    assert found.lag_max_s == 0.04


def test_lags_of_a_client_without_a_schedule_are_taken_from_the_grid():
    assert grid_lags_s([3.2, 1.0, 2.1], rate=1.0) == pytest.approx([0.0, 0.1, 0.2])
    assert grid_lags_s([], rate=1.0) == []


@pytest.mark.loopback
def test_streams_that_begin_together_have_places_of_their_own_in_the_gap(play, engine_for):
    with noop_server(Pace(first_token_s=0.05, gap_s=0.4)) as root:
        requests = [Request(f"r{i}", (9,), 1) for i in range(4)]
        played = play(root, requests, certify=False)
    firsts = sorted(times[0] for times in played.sink.times.values())
    gaps = [after - before for before, after in pairwise(firsts)]
    assert min(gaps) > 0.03  # the four places are 0.058 s apart or more


def test_a_client_certifies_itself_against_the_noop_server():
    found = certify(Client, target(), requests(20, 0.01), max_concurrency=None, processes=1)
    assert (found.requests, found.failed) == (20, 0)
    assert found.asked_req_s == pytest.approx(100)
    assert found.most_streams >= 2
    assert 0 < found.lag_p50_s < 0.5


@pytest.mark.loopback
def test_a_client_that_stalls_is_found_out():
    class Stalling(Client):
        def _message_of(self, request):
            time.sleep(0.02)
            return super()._message_of(request)

    found = certify(Stalling, target(), requests(20, 0.01), max_concurrency=None, processes=1)
    assert found.passed is False
    assert found.lag_p99_s > 0.1


@pytest.mark.loopback
def test_the_noop_server_paces_and_counts(play, engine_for):
    with noop_server(Pace(first_token_s=0.1, gap_s=0.02)) as root:
        played = play(root, requests(3, max_tokens=6))
        times = played.sink.times["r0"]
        seen = ask(root, "/census")
    assert {end.status for end in played.sink.ends.values()} == {"ok"}
    assert [len(times), played.sink.ends["r0"].stats.served_prompt_tokens] == [6, 2]
    assert times[0] >= 0.1
    assert (times[-1] - times[0]) / 5 == pytest.approx(0.02, abs=0.01)
    assert (seen["most_open_streams"], len(seen["arrivals_s"]), seen["lags_s"]) == (3, 3, [])


class Line:
    """A transport that counts; its client leaves between two beats, and then it raises as uvloop's.

    `leaves_after`: that many writes.
    """

    def __init__(self, leaves_after=None):
        self.leaves_after, self.written, self.closed = leaves_after, 0, False

    def is_closing(self):
        return self.closed

    def close(self):
        self.closed = True

    def write(self, _):
        if self.closed:
            raise RuntimeError("unable to perform operation; the handler is closed")
        self.written += 1
        if self.written == self.leaves_after:
            asyncio.get_running_loop().call_soon(self.close)


def test_a_client_that_leaves_holds_no_other_stream_up():
    async def scene():
        pacer, lines = Pacer(0.002, Census()), [Line(leaves_after=3), Line()]
        plays = [pacer.play(line, b"x", 10, time.perf_counter()) for line in lines]
        await asyncio.wait_for(asyncio.gather(*plays), 10)
        return [line.written for line in lines]

    assert asyncio.run(scene()) == [3, 10]


@pytest.mark.loopback
def test_the_certificate_of_a_load_is_made_once_and_told_with_each_run(serve, play, engine_for):
    server = serve()
    engine = engine_for(server.url, certify=True)
    made = []
    for _ in range(2):
        played = play(server, requests(4, 0.01), engine=engine)
        made.append(played.engine.observations()["client"]["certificate"])
    assert made[0] == made[1]
    assert made[0]["requests"] == 4
    play(server, requests(5, 0.01), engine=engine)
    assert engine.observations()["client"]["certificate"]["requests"] == 5
    assert len(server.posts) == 13  # none of the certifications came here
