"""An honest engine without a model, and the same engine with one lie or one mishap each.

First come, first served; each step takes a set time and gives each running request a token. Stats,
step rows and counts are right, so that a verdict has the planted fault alone to speak of.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace

from engines.api import (
    BLOCKED,
    END,
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
from engines.settings import non_negative_float, one_of

SLOTS = 8


@dataclass(slots=True)
class Running:
    """A request in service since `begun_s`."""

    request: Request
    begun_s: float
    hits: int
    sent_s: float | None = None
    tokens: int = 0


class Honest:
    """Every hook below is a place for a lie."""

    def __init__(self, step_s: float) -> None:
        self._step_s = step_s
        self._stopped = threading.Event()
        self.runs = 0

    def describe(self) -> EngineInfo:
        model = ModelInfo("none", 256, 512, (0,), (0, 1), 1, 64, "float32", "cpu")
        return EngineInfo("liar", {}, 512, SLOTS, 4096, model)

    def reset(self) -> None:
        self._stopped.clear()

    def stop(self) -> None:
        self._stopped.set()

    def close(self) -> None:
        pass

    def run(self, source: RequestSource, sink: Sink, clock: Clock) -> None:
        self.runs += 1
        running: list[Running] = []
        steps = 0
        while not self._stopped.is_set():
            for request in source.take(clock.now(), SLOTS - len(running)):
                running.append(self.admit(request, clock))
            if running:
                steps += 1
                running = self._step(steps, running, sink, clock)
                continue
            due = source.next_due()
            if due is END:
                return
            assert due is not BLOCKED
            source.wait(min(float(due), clock.now() + 0.05))

    def _step(self, number: int, running: list[Running], sink: Sink, clock: Clock) -> list[Running]:
        start_s = clock.now()
        clock.sleep_until(start_s + self.step_s(number))
        prompt = sum(len(r.request.prompt_token_ids) - r.hits for r in running if not r.tokens)
        output = sum(1 for r in running if r.tokens)
        for one in running:
            one.tokens += 1
        row = StepRow(
            step=number, start_s=start_s, end_s=clock.now(), compute_s=self._step_s, schedule_s=0.0,
            pack_s=0.0, copy_s=0.0, num_running=len(running), num_waiting=0, slots=SLOTS,
            useful_rows=len(running), prefill_tokens=prompt, decode_tokens=output,
            prompt=prompt, output=output, positions=prompt + output,
        )  # fmt: skip
        ended = [one for one in running if one.tokens >= self.length(one.request)]
        names = [one.request.request_id for one in running]
        finished = [self.finish(one) for one in ended]
        sink.emit(StepEvents(row.end_s, names, [[7]] * len(names), finished, self.row(row)))
        for one in ended:
            self.after(one, sink, row.end_s)
        return [one for one in running if one not in ended]

    def admit(self, request: Request, clock: Clock) -> Running:
        return Running(request, clock.now(), hits=0)

    def step_s(self, number: int) -> float:
        return self._step_s

    def length(self, request: Request) -> int:
        return request.max_tokens or 1

    def finish(self, one: Running) -> Finish:
        stats = RequestStats(
            queue_s=one.begun_s - one.request.scheduled_s,
            preempted_s=0.0,
            num_steps=one.tokens,
            first_time_prompt=len(one.request.prompt_token_ids) - one.hits,
            first_time_output=one.tokens - 1,
            prefix_hit_tokens=one.hits,
            sent_s=one.sent_s,
        )
        return Finish(one.request.request_id, "ok", "length", "", stats)

    def row(self, row: StepRow) -> StepRow:
        return row

    def after(self, one: Running, sink: Sink, time_s: float) -> None:
        pass


class SleepyClient(Honest):
    """A pushing client that sleeps before it sends, and says when it sent."""

    def admit(self, request: Request, clock: Clock) -> Running:
        clock.sleep_until(clock.now() + 0.01)
        return replace(super().admit(request, clock), sent_s=clock.now())


class ShortAnswers(Honest):
    """Stops a token early, and says that it is done."""

    def length(self, request: Request) -> int:
        return super().length(request) - 1


class Drops(Honest):
    """Fails whoever came first."""

    def finish(self, one: Running) -> Finish:
        end = super().finish(one)
        if one.request.request_id.endswith("0"):
            return replace(end, status="failed", finish_reason=None, reason="overloaded")
        return end


class WarmPrefixes(Honest):
    """Keeps its prefix cache over `reset`, so that a second round finds the first one's prompts."""

    def __init__(self, step_s: float) -> None:
        super().__init__(step_s)
        self._seen: set[tuple[int, ...]] = set()

    def admit(self, request: Request, clock: Clock) -> Running:
        prompt = tuple(request.prompt_token_ids)
        hits = len(prompt) - 1 if prompt in self._seen else 0
        self._seen.add(prompt)
        return replace(super().admit(request, clock), hits=hits)


class LostPositions(Honest):
    """Its steps know of fewer positions than its requests."""

    def row(self, row: StepRow) -> StepRow:
        return replace(row, output=0, positions=row.prompt) if row.step == 2 else row


class OtherPositions(Honest):
    """Its executor was given more than its ledger books."""

    def row(self, row: StepRow) -> StepRow:
        return replace(row, positions=row.executed + 1) if row.step == 2 else row


class CountsTwice(Honest):
    """Counts every running request twice."""

    def row(self, row: StepRow) -> StepRow:
        return replace(row, num_running=2 * row.num_running)


class ClockSetBack(Honest):
    """Somebody sets the machine's clock back in the middle of the measured run."""

    jump_s = -10.0

    def row(self, row: StepRow) -> StepRow:
        if row.step == 2 and self.runs == 2:
            wall, jump_s = time.time, self.jump_s
            time.time = lambda: wall() + jump_s
        return row


class ClockSetAhead(ClockSetBack):
    jump_s = 0.25


class ColdWeights(Honest):
    """The warm-up does not touch what the first measured run needs."""

    def step_s(self, number: int) -> float:
        return super().step_s(number) * (8 if self.runs == 2 else 1)


class TalksOn(Honest):
    """Sends a token after a request's end."""

    def after(self, one: Running, sink: Sink, time_s: float) -> None:
        sink.emit(StepEvents(time_s, [one.request.request_id], [[7]]))


LIES: Mapping[str, type[Honest]] = {
    "none": Honest,
    "sleepy-client": SleepyClient,
    "short-answers": ShortAnswers,
    "drops": Drops,
    "warm-prefixes": WarmPrefixes,
    "lost-positions": LostPositions,
    "other-positions": OtherPositions,
    "counts-twice": CountsTwice,
    "clock-set-back": ClockSetBack,
    "clock-set-ahead": ClockSetAhead,
    "cold-weights": ColdWeights,
    "talks-on": TalksOn,
}


def build(settings: Mapping[str, JsonValue], context: BuildContext) -> Honest:
    return LIES[str(settings["lie"])](float(str(settings["step_ms"])) / 1000)


LIAR = EngineEntry(
    name="liar",
    summary="an honest engine, unless told to lie",
    settings=(
        Setting("step_ms", non_negative_float, 5.0, "how long a step takes"),
        Setting("lie", one_of(*LIES), "none", "what is wrong"),
    ),
    builder="cbbench_liars:build",
    preset={},
)
