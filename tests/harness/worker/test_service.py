"""A worker whose parent sends what cannot be read."""

from __future__ import annotations

import multiprocessing
import threading

import pytest

from harness.worker.service import Worker


def test_a_message_that_cannot_be_read_ends_the_worker_and_is_told_in_its_log(
    capfd: pytest.CaptureFixture[str],
) -> None:
    ours, theirs = multiprocessing.Pipe()
    gone = threading.Event()
    with ours, theirs:
        worker = Worker(theirs, 1, gone.set)
        threading.Thread(target=worker.serve, daemon=True).start()
        ours.send_bytes(b"\x80\x05no pickle")
        assert gone.wait(10)
    assert "Traceback" in capfd.readouterr().err
