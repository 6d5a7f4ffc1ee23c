"""Engines for tests of the server, without a model. Installed as a plug-in of its own.

`echo` answers a prompt with its own tokens, again and again, so that a test says what text comes;
some token ids make it fail. `hashing` is the real step loop with a model that only hashes.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Mapping

from engines.api import (
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
from engines.loop.executors.api import Batch
from engines.loop.executors.hashing import HashingExecutor
from engines.loop.kv.paged import PagedCache
from engines.loop.loop import EngineLoop
from engines.loop.policies.chunked import ChunkedPolicy
from engines.loop.policies.static import StaticPolicy
from engines.registry import BuildContext, EngineEntry, Setting
from engines.settings import non_negative_float, one_of, positive_int

RAISES, DIES, FAILS, RAISES_FIRST = 3999, 3998, 3997, 3996
EOS = 2
CONTEXT = 512


def model_info(context: BuildContext, max_model_len: int) -> ModelInfo:
    return ModelInfo(
        context.model_name, 4096, max_model_len, (EOS,), (0, 1, EOS), 1, 64, "none", "none"
    )


class Echo:
    """`slots` requests at once, `burst` tokens each a step."""

    def __init__(self, settings: Mapping[str, JsonValue], context: BuildContext) -> None:
        self._settings = settings
        self._pause_s = float(settings["step_ms"]) / 1000  # type: ignore[arg-type]
        self._slots = int(settings["slots"])  # type: ignore[call-overload]
        self._burst = int(settings["burst"])  # type: ignore[call-overload]
        self._model = model_info(context, context.max_model_len or CONTEXT)
        self._stopping = threading.Event()
        self._running: dict[str, tuple[Request, int]] = {}
        self._step = 0

    def describe(self) -> EngineInfo:
        longest = self._model.max_model_len
        return EngineInfo("echo", dict(self._settings), longest, self._slots, None, self._model)

    def reset(self) -> None:
        self._running.clear()

    def stop(self) -> None:
        self._stopping.set()

    def close(self) -> None:
        print("closed in good order", flush=True)

    def run(self, source: RequestSource, sink: Sink, clock: Clock) -> None:
        while not self._stopping.is_set():
            gone = [name for name in source.cancelled() if self._running.pop(name, None)]
            ends = [Finish(name, "cancelled", reason="the client left") for name in gone]
            if ends:
                sink.emit(StepEvents(clock.now(), finished=ends))
            for request in source.take(clock.now(), self._slots - len(self._running)):
                self._running[request.request_id] = (request, 0)
            if self._running:
                self._make_step(sink, clock)
            elif source.next_due() is END:
                return
            else:
                source.wait(float("inf"))

    def _make_step(self, sink: Sink, clock: Clock) -> None:
        start_s = clock.now()
        clock.sleep_until(start_s + self._pause_s)
        names, tokens, ends = [], [], []
        for name, (request, count) in list(self._running.items()):
            self._break_down(request, count)
            given, end = self._answer(request, count)
            names.append(name)
            tokens.append(given)
            self._running[name] = (request, count + len(given))
            if end is not None:
                del self._running[name]
                ends.append(end)
        self._step += 1
        row = self._row(start_s, clock.now(), len(names))
        sink.emit(StepEvents(clock.now(), names, tokens, ends, row))

    def _answer(self, request: Request, count: int) -> tuple[list[int], Finish | None]:
        prompt = request.prompt_token_ids
        limit = request.max_tokens or self._model.max_model_len - len(prompt)
        stops = set(request.stop_token_ids) | (set() if request.ignore_eos else {EOS})
        given: list[int] = []
        stats = RequestStats(queue_s=0.0, num_steps=count + 1, prefix_hit_tokens=0)
        if FAILS in prompt and count == 2:
            return [prompt[0]], Finish(request.request_id, "failed", reason="as was asked for")
        for _ in range(self._burst):
            given.append(prompt[(count + len(given)) % len(prompt)])
            if given[-1] in stops and count + len(given) > request.min_tokens:
                return given, Finish(request.request_id, "ok", "stop", "", stats)
            if count + len(given) == limit:
                return given, Finish(request.request_id, "ok", "length", "", stats)
        return given, None

    def _break_down(self, request: Request, count: int) -> None:
        if RAISES in request.prompt_token_ids and count == 2:
            raise RuntimeError("broke in a step")
        if RAISES_FIRST in request.prompt_token_ids:
            raise RuntimeError("broke in the first step")
        if DIES in request.prompt_token_ids and count == 2:
            os.kill(os.getpid(), signal.SIGKILL)

    def _row(self, start_s: float, end_s: float, count: int) -> StepRow:
        return StepRow(
            step=self._step,
            start_s=start_s,
            end_s=end_s,
            compute_s=end_s - start_s,
            schedule_s=0.0,
            pack_s=0.0,
            copy_s=0.0,
            num_running=count,
            num_waiting=0,
            slots=self._slots,
            useful_rows=count,
            prefill_tokens=0,
            decode_tokens=count,
            prompt=0,
            output=count,
        )


class Paced:
    """Lets another executor compute, and each step take at least so long."""

    def __init__(self, inner: HashingExecutor, pause_s: float) -> None:
        self._inner = inner
        self._pause_s = pause_s
        self.drop, self.reset, self.close = inner.drop, inner.reset, inner.close

    def submit(self, batch: Batch):  # type: ignore[no-untyped-def]
        time.sleep(self._pause_s)
        return self._inner.submit(batch)


def build_echo(settings: Mapping[str, JsonValue], context: BuildContext) -> Echo:
    if settings["fault"] == "mistake":
        raise CbbenchError("the fake model is not here; give another")
    if settings["fault"] == "crash":
        raise RuntimeError("broke while loading")
    if settings["fault"] == "slow-load":
        threading.Event().wait(600)
    return Echo(settings, context)


def build_hashing(settings: Mapping[str, JsonValue], context: BuildContext) -> EngineLoop[None]:
    num_blocks, slots = int(settings["num_blocks"]), int(settings["slots"])  # type: ignore[call-overload]
    executor = Paced(HashingExecutor(num_blocks, 16), float(settings["step_ms"]) / 1000)  # type: ignore[arg-type]
    policy = (
        StaticPolicy(slots)
        if settings["policy"] == "static"
        else ChunkedPolicy(max_num_seqs=slots, max_num_batched_tokens=256)
    )
    info = EngineInfo(
        "hashing",
        dict(settings),
        max_model_len=4096,
        slots=slots,
        kv_tokens=num_blocks * 16,
        model=model_info(context, 4096),
    )
    return EngineLoop(policy, PagedCache(num_blocks, 16), executor, info)


_COMMON = (
    Setting("step_ms", non_negative_float, 0.0, "how long a step takes at least"),
    Setting("slots", positive_int, 8, "how many requests run at once"),
)
ECHO = EngineEntry(
    name="echo",
    summary="answers with the prompt",
    settings=(
        *_COMMON,
        Setting("burst", positive_int, 1, "tokens a step"),
        Setting("fault", one_of("none", "mistake", "crash", "slow-load"), "none", "what fails"),
    ),
    builder="cbbench_serving:build_echo",
    preset={},
)
HASHING = EngineEntry(
    name="hashing",
    summary="the step loop without a model",
    settings=(
        *_COMMON,
        Setting("num_blocks", positive_int, 256, "blocks of 16 tokens"),
        Setting("policy", one_of("static", "chunked"), "chunked", "who runs"),
    ),
    builder="cbbench_serving:build_hashing",
    preset={},
)
