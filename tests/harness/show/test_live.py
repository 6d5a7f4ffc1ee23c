"""The live table and the plain lines are functions of a snapshot and show names as they are."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console

from engines.clock import VirtualClock
from harness.records import CellKey, CellSnapshot
from harness.show.display import LiveDisplay, PlainDisplay, open_display
from harness.show.live import render
from harness.show.plain import engine_line, progress_lines
from harness.show.snapshot import EngineStatus, RunSnapshot

CELL = CellSnapshot(
    key=CellKey("[/cb]", "all-at-once", 2),
    elapsed_s=6.0,
    total=32,
    done=8,
    counts={"ok": 7, "failed": 1},
    running=16,
    waiting=8,
    output_tokens=4200,
    output_tok_s=700.4,
    ttft_p95_s=1.25,
    kv_used=0.635,
    slots=16,
    preemptions=3,
    steps=100,
)
RUN = RunSnapshot(
    workload="chat-mix",
    model="tiny",
    load="all-at-once",
    round=2,
    rounds=5,
    elapsed_s=42.4,
    left_s=65.0,
    engines=(
        EngineStatus("[/cb]", "running", CELL),
        EngineStatus("static", "done", replace(CELL, done=32, running=0, waiting=0)),
        EngineStatus("broken", "failed", None, "RuntimeError: [bold]no\x1b[31m\nmemory[/x]"),
        EngineStatus("a-name-that-is-much-longer-than-names-usually-are", "ready"),
    ),
)


def drawn(run: RunSnapshot, width: int = 140) -> str:
    console = Console(width=width, file=io.StringIO(), record=True)
    console.print(render(run))
    return console.export_text()


def test_table_shows_a_row_per_engine_and_where_the_run_stands() -> None:
    text = drawn(RUN)
    assert "chat-mix on tiny: all-at-once, round 2 of 5, 42 s, about 1:05 left" in text
    row = next(line for line in text.splitlines() if "[/cb]" in line)
    for value in ("running", "8/32", "18 s", "16", "64%", "700", "1250 ms", "3"):
        assert value in row


def test_names_and_errors_are_shown_literally() -> None:
    text = drawn(RUN)
    assert "[/cb]" in text
    assert "broken: RuntimeError: [bold]no [31m memory[/x]" in text
    assert "\x1b" not in text


def test_drawing_is_pure() -> None:
    assert drawn(RUN) == drawn(RUN)


def test_narrow_terminal_folds_names_and_keeps_every_letter() -> None:
    letters = "".join(drawn(RUN, width=100).split())
    assert "longer-than-names-usually-are"[-10:] in letters


def test_time_left_needs_something_done() -> None:
    assert EngineStatus("a", "running", replace(CELL, done=0)).left_s is None
    assert EngineStatus("a", "done", CELL).left_s is None
    assert EngineStatus("a", "running", CELL).left_s == 18.0


def test_plain_lines_are_ascii_and_complete() -> None:
    lines = progress_lines(RUN)
    assert lines[0] == "chat-mix on tiny: all-at-once, round 2 of 5, 42 s, about 1:05 left"
    assert lines[1] == (
        "  [/cb]: running, 8/32 requests, 1 not ok, 16 running, 8 waiting, KV 64%, 700 tok/s, "
        "p95 TTFT 1250 ms, 3 preemptions, about 18 s left"
    )
    assert "\n".join(lines).isascii()
    assert engine_line(RUN.engines[2]) == "broken: failed: RuntimeError: [bold]no [31m memory[/x]"
    assert engine_line(RUN.engines[3]).startswith("a-name-that-is-much-longer-than-names-usually")


def test_plain_display_speaks_at_cell_ends_and_every_few_seconds() -> None:
    clock, stream = VirtualClock(), io.StringIO()
    display = PlainDisplay(stream, clock)
    display.update(RUN)
    assert stream.getvalue() == ""
    clock.advance(5.0)
    display.update(RUN)
    once = stream.getvalue()
    assert once.count("\n") == 2
    display.update(RUN)
    assert stream.getvalue() == once
    display.cell_ended(RUN, RUN.engines[1])
    assert stream.getvalue().endswith(
        "all-at-once, round 2: static: done, 32/32 requests, 25 not ok, KV 64%, 700 tok/s, "
        "p95 TTFT 1250 ms, 3 preemptions\n"
    )


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("stream", "environment", "kind"),
    [
        (io.StringIO(), {"TERM": "xterm"}, PlainDisplay),
        (Terminal(), {"TERM": "dumb"}, PlainDisplay),
        (Terminal(), {}, PlainDisplay),
        (Terminal(), {"TERM": "xterm"}, LiveDisplay),
    ],
)
def test_only_a_real_terminal_gets_the_live_table(
    stream: io.StringIO, environment: dict[str, str], kind: type
) -> None:
    display = open_display(stream, VirtualClock(), environment)
    display.update(RUN)
    display.close()
    assert isinstance(display, kind)


def test_live_display_survives_markup_in_a_note() -> None:
    stream = Terminal()
    display = LiveDisplay(stream, VirtualClock())
    display.note("warning: [/x] is small")
    display.close()
    assert "[/x] is small" in stream.getvalue()
