"""Spans of a request's life add up to what the engine said of it."""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engines.api import Request, RequestStats
from engines.clock import VirtualClock
from harness.explain.spans import Span, began_s, ended_s, spans

SMALL = "num_blocks=12,block_size=4,max_num_seqs=5"
SPECS = [
    f"loop[policy=static,{SMALL}]",
    f"loop[policy=prefill-first,{SMALL}]",
    f"continuous[max_num_batched_tokens=9,{SMALL}]",
    f"continuous[max_num_batched_tokens=9,preemption=swap,order=srpt,{SMALL}]",
]


class Leaving:
    """A source that some clients leave."""

    def __init__(self, inner, leaves, clock) -> None:
        self._inner, self._leaves, self._clock = inner, dict(leaves), clock
        self.take, self.next_due, self.wait = inner.take, inner.next_due, inner.wait

    def cancelled(self):
        gone = [name for name, at_s in self._leaves.items() if at_s <= self._clock.now()]
        for name in gone:
            del self._leaves[name]
        return tuple(gone)


def check(request) -> None:
    """Spans follow one another without a hole, and each kind's seconds are the record's."""
    found = spans(request)
    sums: dict[str, float] = defaultdict(float)
    for span in found:
        sums[span.kind] += span.end_s - span.start_s
    stats = request.stats
    assert sums["queue"] == pytest.approx(stats.queue_s, abs=1e-9)
    assert sums["prefill"] == pytest.approx(stats.prefill_s, abs=1e-9)
    assert sums["decode"] == pytest.approx(stats.decode_s, abs=1e-9)
    assert sums["preempted"] == pytest.approx(stats.preempted_s, abs=1e-9)
    if found:
        assert found[0].start_s == request.scheduled_s
        assert found[-1].end_s == pytest.approx(ended_s(request))
        assert all(a.end_s == b.start_s for a, b in pairwise(found))


@settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    spec=st.sampled_from(SPECS),
    shapes=st.lists(
        st.tuples(st.integers(1, 30), st.integers(1, 18), st.floats(0, 1)), min_size=1, max_size=10
    ),
    leaves=st.dictionaries(st.integers(0, 9), st.floats(0, 2), max_size=3),
    stop_at=st.none() | st.integers(0, 30),
)
def test_the_spans_of_every_request_add_up(
    tmp_path_factory, simulate, spec, shapes, leaves, stop_at
):
    simulate.folder = tmp_path_factory.mktemp("run")
    requests = [
        Request(f"r{i}", tuple(range(i, i + prompt)), answer, scheduled_s=at_s)
        for i, (prompt, answer, at_s) in enumerate(shapes)
    ]
    gone = {f"r{i}": at_s for i, at_s in leaves.items()}

    def wrap(source, clock: VirtualClock):
        return Leaving(source, gone, clock)

    cell = simulate(spec, requests, wrap=wrap, stop_at=stop_at)
    for request in cell.requests:
        if request.stats.queue_s is not None:
            check(request)
        if request.status == "ok":
            assert ended_s(request) == pytest.approx(request.end_s)


def test_a_preempted_request_has_a_span_for_each_absence(player):
    stats = RequestStats(
        queue_s=1.0,
        prefill_s=1.5,
        decode_s=3.0,
        preempted_s=3.5,
        num_steps=9,
        preempted_from_s=(1.5, 5.0),
        preempted_until_s=(2.0, 8.0),
    )
    cell = player.cell([player.request("a")], player.answer("a", [3.0, 4.0, 9.0], stats))
    assert spans(cell.requests[0]) == (
        Span("queue", 0.0, 1.0),
        Span("prefill", 1.0, 1.5),
        Span("preempted", 1.5, 2.0),
        Span("prefill", 2.0, 3.0),
        Span("decode", 3.0, 5.0),
        Span("preempted", 5.0, 8.0),
        Span("decode", 8.0, 9.0),
    )
    assert (began_s(cell.requests[0]), ended_s(cell.requests[0])) == (1.0, 9.0)


def test_an_engine_that_does_not_tell_leaves_its_wait_unnamed(player):
    cell = player.cell([player.request("a", at=1.0)], player.answer("a", [3.0, 4.0]))
    (request,) = cell.requests
    assert spans(request) == (Span("until first token", 1.0, 3.0), Span("decode", 3.0, 4.0))
    assert (began_s(request), ended_s(request)) == (None, 4.0)


def test_who_never_came_in_only_queued(player):
    stats = RequestStats(queue_s=2.0, prefill_s=0.0, decode_s=0.0, preempted_s=0.0, num_steps=0)
    events = [player.end(3.0, "a", "cancelled", "the client left", stats)]
    (request,) = player.cell([player.request("a", at=1.0)], events).requests
    assert spans(request) == (Span("queue", 1.0, 3.0),)
    assert (began_s(request), ended_s(request)) == (None, 3.0)
    refused = player.end(0.0, "b", "rejected", "too long")
    player.folder = player.folder / "other"
    assert spans(player.cell([player.request("b")], [refused]).requests[0]) == ()
