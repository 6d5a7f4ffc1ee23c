"""Which requests and which classes of two engines are paired, and when the memory is credited."""

from __future__ import annotations

import pytest

from harness.results.file import close_run
from harness.results.values import Comparison, RunFile

SETTINGS = {"engine_order": ["a", "b"]}


def found(run: RunFile, metric: str, request_class: str | None = None) -> Comparison | None:
    return next(
        (c for c in run.comparisons if (c.metric, c.request_class) == (metric, request_class)),
        None,
    )


def test_only_requests_that_were_ok_in_both_are_paired(player):
    """Each engine fails another request, after a first token that must not be compared."""
    requests = [player.request(f"r{i}", out=2) for i in range(3)]
    for engine, failed, first_s in (("a", "r0", 1.0), ("b", "r1", 3.0)):
        served = [r for r in ("r0", "r1", "r2") if r != failed]
        events = [event for r in served for event in player.answer(r, [first_s, 5.0])]
        events += [player.tokens(0.001, {failed: 1}), player.end(0.5, failed, "failed", "x")]
        player.record(requests, events, engine=engine)
    ratio = found(close_run(player.folder, SETTINGS, {}), "ttft_s by request")
    assert ratio.ratio == pytest.approx(3.0)
    assert "on 1 requests that were ok in both" in ratio.note


def test_a_class_is_compared_only_where_every_cell_has_it(player):
    labels = {("a", 1): "xyz", ("b", 1): "xyz", ("a", 2): "xyz", ("b", 2): "xy"}
    for (engine, number), names in labels.items():
        requests = [player.request(name, out=2, label=name) for name in names]
        events = [event for name in names for event in player.answer(name, [1.0, 2.0])]
        player.record(requests, events, engine=engine, number=number)
    run = close_run(player.folder, SETTINGS, {})
    assert {c.request_class for c in run.comparisons if c.request_class} == {"x", "y"}
    assert found(run, "ttft_s.p50", "x").rounds == 2


@pytest.mark.parametrize(
    ("before", "after", "kind"),
    [
        ("contiguous", "paged", "memory"),
        ("paged", "contiguous", "engines"),
        ("paged", "paged", "engines"),
    ],
)
def test_the_memory_is_credited_only_from_contiguous_to_paged(player, before, after, kind):
    for engine, allocator in (("a", before), ("b", after)):
        info = player.info("loop", {"policy": "chunked", "allocator": allocator})
        requests = [player.request("r", out=2)]
        player.record(requests, player.answer("r", [1.0, 2.0]), engine=engine, info=info)
    run = close_run(player.folder, SETTINGS, {})
    kinds = {c.kind for c in run.comparisons if (c.baseline, c.engine) == ("a", "b")}
    assert kinds == {kind}
