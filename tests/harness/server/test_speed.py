"""Nothing in the server waits for a timer of the network's."""

from __future__ import annotations

import time

import httpx


def test_an_answer_in_two_writes_is_not_held_back_by_the_system(echo):
    durations_s = []
    with httpx.Client(trust_env=False) as client:
        for _ in range(60):
            begun_s = time.perf_counter()
            client.get(f"{echo.url}/health")
            durations_s.append(time.perf_counter() - begun_s)
    assert sorted(durations_s)[30] < 0.03  # the first few of a connection are never held back
