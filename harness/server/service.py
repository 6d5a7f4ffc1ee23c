"""What the server is doing: loading, ready, draining or without an engine; and who may come in.

Belongs to the event loop's thread. It takes the engine's messages and decides on admission.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal

from engines.api import EngineInfo, StepEvents
from harness.server.answering import Answering, Patience
from harness.server.bounded_body import BodyLimits
from harness.server.desk import Desk
from harness.server.errors import ApiError, overloaded, unavailable
from harness.server.jobs import Job, JobReader
from harness.server.messages import Gone, NotBuilt, Ready, StepFailed, Up
from harness.server.metrics import ServerMetrics
from harness.server.shapes import Shape
from harness.server.text import ModelText

Phase = Literal["loading", "ready", "draining", "gone"]


@dataclass(frozen=True, slots=True)
class Limits:
    """`most_waiting` requests may wait beside those that the engine has slots for."""

    most_waiting: int = 256
    body: BodyLimits = field(default_factory=BodyLimits)
    longest_silence_s: float = 300.0
    patience: Patience = field(default_factory=Patience)


@dataclass(frozen=True, slots=True)
class Standing:
    """A built engine and what is needed to talk to it."""

    info: EngineInfo
    text: ModelText
    reader: JobReader


class Service:
    """See the module. `on_change` is called when the phase has changed."""

    def __init__(
        self,
        model_name: str,
        desk: Desk,
        metrics: ServerMetrics,
        limits: Limits,
        draw_bits: Callable[[int], int],
        on_change: Callable[[], None],
        wall_s: Callable[[], float] = time.time,
    ) -> None:
        self.model_name = model_name
        self.limits = limits
        self.metrics = metrics
        self.desk = desk
        self.phase: Phase = "loading"
        self.started_s = int(wall_s())
        self.not_built: NotBuilt | None = None
        self.how_it_ended = ""
        self.standing: Standing | None = None
        self._num_being_read = 0
        self._draw_bits = draw_bits
        self._on_change = on_change
        self._wall_s = wall_s

    def receive(self, message: Up) -> None:
        """One message of the engine's process."""
        match message:
            case StepEvents():
                self.desk.dispatch(message)
            case StepFailed():
                self.metrics.step_failed()
            case Ready(info, data):
                text = ModelText(data)
                self.standing = Standing(info, text, JobReader(text, info, self._draw_bits))
                if self.phase == "loading":
                    self._enter("ready")
            case NotBuilt():
                self.not_built = message
            case Gone(how):
                self.how_it_ended = how
                self.desk.fail_all(f"the engine's process {how}")
                self._enter("gone")

    def drain(self) -> None:
        """Takes nobody in any more."""
        if self.phase != "gone":
            self._enter("draining")

    def is_drained(self) -> bool:
        """Whether nothing is in flight. An engine that makes no step loses its requests first."""
        if self.desk.silence_s > self.limits.longest_silence_s:
            self.how_it_ended = f"has made no step for {self.desk.silence_s:.0f} s"
            self.desk.fail_all(f"the engine {self.how_it_ended}, and the server is shutting down")
        return not self.desk.in_flight

    def check_health(self) -> None:
        """Raises `ApiError` 503 unless the engine stands and makes its steps."""
        if self.phase not in ("ready", "draining"):
            raise unavailable(f"the engine is {self.phase}")
        if self.desk.silence_s > self.limits.longest_silence_s:
            raise unavailable(f"the engine has made no step for {self.desk.silence_s:.0f} s")

    def check_phase(self) -> Standing:
        """Raises `ApiError` 503 unless requests are taken."""
        if self.phase == "ready" and self.standing is not None:
            return self.standing
        raise unavailable(
            {
                "loading": "the model is being loaded",
                "draining": "the server is shutting down and takes no new requests",
            }.get(self.phase, "the engine has ended")
        )

    def check_model(self, name: str | None) -> None:
        """Raises `ApiError` 404."""
        if name is not None and name != self.model_name:
            raise ApiError(
                404,
                f"the model {name[:100]!r} is not served here; expected {self.model_name!r}",
                param="model",
                code="model_not_found",
            )

    @contextmanager
    def reading(self) -> Iterator[None]:
        """While a long prompt is made into tokens beside the event loop: it takes a place.

        Raises `ApiError` 429 when the queue is full.
        """
        self._check_room(1)
        self._num_being_read += 1
        try:
            yield
        finally:
            self._num_being_read -= 1

    def answer(self, job: Job, standing: Standing) -> Answering:
        """Raises `ApiError` 429 when the queue is full."""
        most = self._most
        if len(job.requests) > most:
            raise ApiError(
                400, f"{len(job.requests)} prompts in one request; at most {most}", param="prompt"
            )
        self._check_room(len(job.requests))
        shape = Shape(job.endpoint, job.answer_id, int(self._wall_s()), self.model_name)
        return Answering(job, shape, self.desk, standing.text, self.limits.patience)

    @property
    def _most(self) -> int:
        """Requests at once."""
        slots = self.standing.info.slots if self.standing is not None else None
        return (slots or 0) + self.limits.most_waiting

    def _check_room(self, newcomers: int) -> None:
        inside = self.desk.in_flight + self._num_being_read
        if inside + newcomers > self._most:
            raise overloaded(
                f"the queue is full: {inside} requests in flight, at most {self._most}"
            )

    def _enter(self, phase: Phase) -> None:
        self.phase = phase
        self._on_change()
