"""What crosses the pipe between the HTTP process and the engine process: plain values only.

Downwards `Build` once, then `Work`, at last `Close`. Upwards `Ready` or `NotBuilt` once, then the
engine's own `StepEvents`, one message a step, and `StepFailed`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from engines.api import EngineInfo, Request, RequestId, StepEvents
from engines.models.text_data import TextData
from engines.registry import BuildContext, EngineSpec


@dataclass(frozen=True, slots=True)
class Build:
    """Build the engine and begin to serve."""

    spec: EngineSpec
    context: BuildContext


@dataclass(frozen=True, slots=True)
class Work:
    """What has come since the last message: requests to serve, and those whose client has left."""

    submit: tuple[Request, ...] = ()
    cancel: tuple[RequestId, ...] = ()


@dataclass(frozen=True, slots=True)
class Close:
    """Finish what there is and leave."""


@dataclass(frozen=True, slots=True)
class Ready:
    """The engine stands and takes work."""

    info: EngineInfo
    text: TextData


@dataclass(frozen=True, slots=True)
class NotBuilt:
    """`mistake`: the user's, in one sentence; `crash`: anything else."""

    kind: Literal["mistake", "crash"]
    error: str


@dataclass(frozen=True, slots=True)
class StepFailed:
    """A step raised. Its requests have been told; the engine serves on."""

    error: str


@dataclass(frozen=True, slots=True)
class Gone:
    """Made in the parent: the process has ended, and how."""

    how: str


Down = Build | Work | Close
Up = Ready | NotBuilt | StepFailed | StepEvents | Gone
