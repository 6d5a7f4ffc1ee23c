"""An engine that is served: runs that raise, requests that are nobody's any more, quiet sources."""

from __future__ import annotations

import math
import threading

import pytest

from engines.api import BLOCKED, END, Finish, Request, StepEvents
from engines.clock import VirtualClock, WallClock
from harness.server.messages import StepFailed
from harness.server.served_engine import GAVE_UP, MOST_FAILURES, ServedEngine
from workloads.sources import QueueSource


class Scripted:
    """Each run does the next thing of the script with its source and sink."""

    def __init__(self, *script):
        self._script = list(script)
        self.resets = 0

    def run(self, source, sink, clock):
        self._script.pop(0)(source, sink)

    def reset(self):
        self.resets += 1


def raises(source, sink):
    source.take(0.0, 9)
    raise RuntimeError("broken\nsecond line")


def returns_early(source, sink):
    pass


def ends(source, sink):
    for request in source.take(0.0, 9):
        sink.emit(StepEvents(0.0, [request.request_id], [[1]]))
        sink.emit(StepEvents(0.0, finished=[Finish(request.request_id, "ok", "length")]))
    source._source.close()


@pytest.fixture
def source():
    return QueueSource(VirtualClock())


def served(source, *script):
    sent = []
    engine = Scripted(*script)
    return ServedEngine(engine, source, VirtualClock(), sent.append), engine, sent


def finishes(sent):
    return [
        (f.request_id, f.status, f.reason)
        for e in sent
        if hasattr(e, "finished")
        for f in e.finished
    ]


def test_whoever_was_taken_by_a_run_that_raised_is_told(source):
    source.submit(Request("a", (1,), 1))
    runner, engine, sent = served(source, raises, ends)
    assert runner.run() == 0
    assert finishes(sent) == [("a", "failed", "RuntimeError: broken")]
    assert StepFailed("RuntimeError: broken") in sent
    assert engine.resets == 1


def test_whoever_came_later_is_served_by_the_next_run(source):
    def raises_then_one_comes(source_, sink):
        source_.take(0.0, 9)
        source.submit(Request("b", (1,), 1))
        raise RuntimeError("broken")

    source.submit(Request("a", (1,), 1))
    runner, _, sent = served(source, raises_then_one_comes, ends)
    assert runner.run() == 0
    assert finishes(sent)[-1] == ("b", "ok", "")


@pytest.mark.parametrize("fault", [raises, returns_early])
def test_it_gives_up_after_failures_without_a_token(source, fault):
    runner, engine, _ = served(source, *[fault] * MOST_FAILURES)
    assert runner.run() == GAVE_UP
    assert engine.resets == MOST_FAILURES - 1


def test_a_token_wipes_the_failures_out(source):
    def gives_a_token_then_raises(source_, sink):
        sink.emit(StepEvents(0.0, ["x"], [[1]]))
        raise RuntimeError("broken")

    script = [raises, raises, gives_a_token_then_raises, raises, ends]
    runner, _, _ = served(source, *script)
    assert runner.run() == 0


def test_an_open_source_is_blocked_only_while_somebody_waits_in_the_quiet():
    clock = VirtualClock()
    source = QueueSource(clock)
    runner = ServedEngine(Scripted(), source, clock, lambda message: None, quiet_s=2.0)
    runner.take(0.0, 9)
    assert runner.next_due() == math.inf
    source.submit(Request("a", (1,), 1), scheduled_s=1.0)
    runner.take(1.0, 9)
    assert runner.next_due() == 3.0
    source.submit(Request("b", (1,), 1), scheduled_s=2.5)
    runner.take(2.9, 9)
    assert runner.next_due() == 4.5
    runner.take(4.5, 9)
    assert runner.next_due() == BLOCKED
    ended = [Finish(name, "ok", "length") for name in "ab"]
    runner.emit(StepEvents(5.0, finished=ended))
    assert runner.next_due() == math.inf
    source.close()
    assert runner.next_due() == END


def test_a_wait_ends_when_the_quiet_begins():
    clock = WallClock()
    source = QueueSource(clock)
    runner = ServedEngine(Scripted(), source, clock, lambda message: None, quiet_s=0.05)
    source.submit(Request("a", (1,), 1))
    runner.take(clock.now(), 9)
    waiting = threading.Thread(target=runner.wait, args=(math.inf,), daemon=True)
    waiting.start()
    waiting.join(timeout=30)
    assert not waiting.is_alive()
    runner.take(clock.now(), 9)
    assert runner.next_due() == BLOCKED
