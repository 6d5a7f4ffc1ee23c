"""What the tests of the workloads share."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from engines.api import Request
from workloads.workload import ModelLimits, Workload, draw, open_workload


@pytest.fixture
def limits() -> ModelLimits:
    return ModelLimits(vocab_size=4096, max_model_len=4096, special_token_ids=(0, 1, 2, 3))


@pytest.fixture
def real_traces() -> Path:
    folder = os.environ.get("CBBENCH_TEST_DATA")
    if not folder:
        pytest.skip("CBBENCH_TEST_DATA is not set")
    return Path(folder) / "traces"


@pytest.fixture
def chat_mix(limits: ModelLimits) -> Workload:
    return draw(open_workload("chat-mix"), seed=0, limits=limits)


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str, str], Path]:
    """Writes a file byte for byte, line ends included."""

    def write_file(name: str, text: str) -> Path:
        path = tmp_path / name
        path.write_bytes(text.encode())
        return path

    return write_file


@pytest.fixture
def make_requests() -> Callable[..., list[Request]]:
    """Requests `a`, `b`, ... at the given times."""

    def build(*times_s: float) -> list[Request]:
        return [
            Request(chr(ord("a") + i), (1, 2, 3), 4, scheduled_s=time_s)
            for i, time_s in enumerate(times_s)
        ]

    return build
