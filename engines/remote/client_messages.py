"""What an engine and its client processes say to each other: plain picklable values.

The engine commands; `Prepare`, `Warm` and `Run` are each answered with one `Done` or `Trouble`, and
`Heard` comes in between. Times are in seconds from the run's t0, which `Run` carries.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from engines.api import Finish, Request, RequestId
from engines.remote.client import Target


@dataclass(frozen=True, slots=True)
class Aim:
    """The first message: what to talk to."""

    target: Target


@dataclass(frozen=True, slots=True)
class Prepare:
    requests: tuple[Request, ...]


@dataclass(frozen=True, slots=True)
class Warm:
    connections: int


@dataclass(frozen=True, slots=True)
class Run:
    """`t0_s` by `time.perf_counter()`, which all processes of a machine share."""

    t0_s: float


@dataclass(frozen=True, slots=True)
class HandOut:
    """Requests of the run; one that was prepared comes as its id and its instant."""

    known: tuple[tuple[RequestId, float], ...]
    others: tuple[Request, ...] = ()


@dataclass(frozen=True, slots=True)
class Leave:
    """Their clients have gone."""

    request_ids: tuple[RequestId, ...]


@dataclass(frozen=True, slots=True)
class NoMore:
    """Everything has been handed out."""


@dataclass(frozen=True, slots=True)
class Stop:
    """End the run at once."""


@dataclass(frozen=True, slots=True)
class Heard:
    """What came at `time_s`, as `StepEvents` has it."""

    time_s: float
    request_ids: Sequence[RequestId]
    token_ids: Sequence[Sequence[int]]
    finished: Sequence[Finish]


@dataclass(frozen=True, slots=True)
class Done:
    retried: int = 0


@dataclass(frozen=True, slots=True)
class Trouble:
    """A command failed. `mistake`: the user's, in one sentence."""

    error: str
    mistake: bool


Command = Aim | Prepare | Warm | Run | HandOut | Leave | NoMore | Stop
Answer = Heard | Done | Trouble
