"""Engines for tests, without a model: each step takes a set time and gives each request a token.

Installed as a plug-in of its own, so that the way through the entry points is tested too.
"""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path

from engines.api import (
    BLOCKED,
    END,
    CbbenchError,
    Clock,
    EngineInfo,
    Finish,
    JsonValue,
    ModelInfo,
    Request,
    RequestSource,
    RequestStats,
    Sink,
    StepEvents,
    StepRow,
)
from engines.registry import BuildContext, EngineEntry, Setting
from engines.settings import non_negative_float, one_of, positive_int

FAULTS = (
    "none",
    "mistake",
    "build",
    "warm-up",
    "run",
    "kill",
    "disk",
    "deaf",
    "child",
    "fail-all",
    "slow-load",
    "places",
    "warm-cache",
)


class FakeEngine:
    """First come, first served, `slots` at a time."""

    def __init__(self, settings: Mapping[str, JsonValue], context: BuildContext) -> None:
        self._step_s = float(settings["step_ms"]) / 1000  # type: ignore[arg-type]
        self._slots = int(settings["slots"])  # type: ignore[call-overload]
        self._fault = str(settings["fault"])
        self._settings = settings
        self._context = context
        self._stopped = threading.Event()
        self._runs = 0
        self._steps = 0

    def describe(self) -> EngineInfo:
        model = ModelInfo(self._context.model_name, 256, 512, (0,), (0, 1), 1, 64, "float32", "cpu")
        return EngineInfo("fake", dict(self._settings), 512, self._slots, 4096, model)

    def reset(self) -> None:
        self._stopped.clear()

    def stop(self) -> None:
        if self._fault != "deaf":
            self._stopped.set()

    def close(self) -> None:
        print("closed in good order", flush=True)

    def run(self, source: RequestSource, sink: Sink, clock: Clock) -> None:
        self._runs += 1
        self._steps = 0
        if self._fault == "warm-up":
            raise RuntimeError("broke in the warm-up")
        running: dict[str, tuple[Request, int]] = {}
        while not self._stopped.is_set():
            for request in source.take(clock.now(), self._slots - len(running)):
                running[request.request_id] = (request, 0)
            if not running:
                due = source.next_due()
                if due is END:
                    print(f"run of {self._steps} steps", flush=True)
                    return
                assert due is not BLOCKED
                source.wait(min(float(due), clock.now() + 0.05))  # type: ignore[arg-type]
                continue
            self._step(running, sink, clock)
        cut = [Finish(name, "cancelled", None, "stopped") for name in running]
        sink.emit(StepEvents(clock.now(), finished=cut))

    def _step(self, running: dict[str, tuple[Request, int]], sink: Sink, clock: Clock) -> None:
        start_s = clock.now()
        clock.sleep_until(start_s + self._step_s)
        self._steps += 1
        if self._steps == 3 and self._runs > 1:
            self._break_down()
        names = list(running)
        finished = []
        prompt = sum(len(r.prompt_token_ids) for r, n in running.values() if n == 0)
        output = sum(1 for _, n in running.values() if n > 0)
        for name, (request, count) in list(running.items()):
            running[name] = (request, count + 1)
            if count + 1 == request.max_tokens:
                del running[name]
                finished.append(self._finish(request))
        row = StepRow(
            step=self._steps,
            start_s=start_s,
            end_s=clock.now(),
            compute_s=self._step_s,
            schedule_s=0.0,
            pack_s=0.0,
            copy_s=0.0,
            num_running=len(names),
            num_waiting=0,
            slots=self._slots,
            useful_rows=len(names),
            prefill_tokens=prompt,
            decode_tokens=output,
            prompt=prompt,
            output=output,
        )
        sink.emit(StepEvents(clock.now(), names, [[7]] * len(names), finished, row))

    def _finish(self, request: Request) -> Finish:
        if self._fault == "fail-all":
            return Finish(request.request_id, "failed", None, "connection refused")
        prompt = len(request.prompt_token_ids)
        hits = prompt - 1 if self._fault == "warm-cache" else 0
        stats = RequestStats(
            first_time_prompt=prompt - hits,
            first_time_output=(request.max_tokens or 1) - 1,
            prefix_hit_tokens=hits,
        )
        return Finish(request.request_id, "ok", "length", "", stats)

    def _break_down(self) -> None:
        if self._fault == "run":
            raise RuntimeError("broke [bold]in a step[/x]")
        if self._fault == "kill":
            print(f"about to need too much memory at {Path.cwd()}/x", file=sys.stderr, flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
        if self._fault == "places":
            raise RuntimeError(f"cannot read {Path(self._context.model).resolve()}/weights")
        if self._fault == "disk":
            raise OSError(errno.ENOSPC, "No space left on device")


def build(settings: Mapping[str, JsonValue], context: BuildContext) -> FakeEngine:
    print("library noise on stdout")
    print("library noise on stderr: \x1b[31mred\x1b[0m", file=sys.stderr)
    if settings["fault"] == "mistake":
        raise CbbenchError(f"model {context.model!r} is not here; give another")
    if settings["fault"] == "slow-load":
        threading.Event().wait(600)
    if settings["fault"] == "build":
        raise RuntimeError("broke while loading")
    if settings["fault"] == "child":
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        Path(os.environ["CBBENCH_FAKE_CHILD"]).write_text(str(child.pid))
    return FakeEngine(settings, context)


FAKE = EngineEntry(
    name="fake",
    summary="an engine for tests [/cb]",
    settings=(
        Setting("step_ms", non_negative_float, 1.0, "how long a step takes"),
        Setting("slots", positive_int, 8, "how many requests run at once"),
        Setting("table", str, "none", "a file to read"),
        Setting("fault", one_of(*FAULTS), "none", "what goes wrong"),
    ),
    builder="cbbench_fakes:build",
    preset={},
)
