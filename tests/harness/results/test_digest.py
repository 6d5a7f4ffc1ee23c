"""A run.json that somebody changed is refused; one that a tool only wrote again is not."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from engines.api import CbbenchError
from harness.results.file import close_run, read_run
from harness.results.values import RunFile


@pytest.fixture
def closed(player) -> RunFile:
    player.record([player.request("a", out=2)], player.answer("a", [1.0, 2.0]))
    return close_run(player.folder, {}, {})


def rewrite(player, change: Callable[[dict[str, Any]], object], **style: Any) -> None:
    path = player.folder / "run.json"
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content, **style))


@pytest.mark.parametrize(
    "change",
    [
        lambda run: run["results"][0].update(output_throughput_tok_s=999.0),
        lambda run: run["results"][0]["ttft_s"].update(p50=None),
        lambda run: run["results"][0]["verdict"].update(reasons=[]),
        lambda run: run.update(workload_hash="another"),
        lambda run: run["results"].clear(),
        lambda run: run.update(digest="0" * 64),
        lambda run: run.pop("digest"),
    ],
    ids=["number", "quantile", "verdict", "hash", "results", "digest", "no digest"],
)
def test_a_file_changed_by_hand_is_refused_in_a_sentence(player, closed, change):
    rewrite(player, change)
    with pytest.raises(CbbenchError, match="it was changed after it was written"):
        read_run(player.folder)


def test_the_rows_of_a_changed_file_still_give_the_true_numbers(player, closed):
    rewrite(player, lambda run: run["results"][0].update(makespan_s=0.1))
    (player.folder / "run.json").unlink()
    assert read_run(player.folder) == closed
    assert close_run(player.folder) == closed == read_run(player.folder)


def test_another_order_other_spaces_and_whole_numbers_are_the_same_file(player, closed):
    assert closed.results[0].makespan_s == 2.0

    def whole(run: dict[str, Any]) -> None:
        run["results"][0]["makespan_s"] = 2

    rewrite(player, whole, sort_keys=True, indent=4)
    assert read_run(player.folder) == closed


@pytest.mark.parametrize("number", ["NaN", "Infinity", "1e999"])
def test_a_number_that_is_none_is_refused_and_never_read(player, closed, number):  # F1
    path = player.folder / "run.json"
    path.write_text(path.read_text().replace('"makespan_s": 2.0', f'"makespan_s": {number}'))
    with pytest.raises(CbbenchError, match="cannot use"):
        read_run(player.folder)
