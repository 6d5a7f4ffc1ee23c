"""Nothing in the server waits for a timer of the network's."""

from __future__ import annotations

import time

import httpx


def test_an_answer_in_two_writes_is_not_held_back_by_the_system(echo):
    durations_s = []
    with httpx.Client(trust_env=False) as client:
        for _ in range(20):
            begun_s = time.perf_counter()
            client.get(f"{echo.url}/health")
            durations_s.append(time.perf_counter() - begun_s)
    assert min(durations_s) < 0.03
