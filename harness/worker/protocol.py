"""The messages between the parent and a worker: plain picklable values and nothing else.

Knows no engine, no process and no pipe. The parent sends commands; the worker answers each with
exactly one answer (`Built`, `Encoded`, `Judged`, `CellDone` or `Failed`), and sends `Progress` in
between. `Stop` has no answer of its own: the cell that it ends has one.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from engines.api import EngineInfo, Request
from engines.judging import Judgement, Question
from engines.registry import BuildContext, EngineSpec
from harness.records import CellKey, CellSnapshot
from workloads.workload import Load

FailureKind = Literal["mistake", "crash", "disk"]
_DISK_FULL: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@dataclass(frozen=True, slots=True)
class Build:
    """Build the engine. Answer: `Built`."""

    spec: EngineSpec
    context: BuildContext


@dataclass(frozen=True, slots=True)
class Encode:
    """Turn texts into token ids with the model's tokenizer. Answer: `Encoded`."""

    texts: Sequence[str]
    chat: bool


@dataclass(frozen=True, slots=True)
class Judge:
    """Load the model alone and say which token should have come. Answer: `Judged`."""

    context: BuildContext
    questions: Sequence[Question]


@dataclass(frozen=True, slots=True)
class RunCell:
    """Run one cell; `requests` carry the absolute schedule. Answer: `CellDone`."""

    key: CellKey
    requests: tuple[Request, ...]
    load: Load
    warmup: tuple[Request, ...]
    folder: Path
    save_outputs: bool
    save_plans: bool = False


@dataclass(frozen=True, slots=True)
class Stop:
    """End the cell `key` at the next step boundary, or before its first step."""

    key: CellKey


@dataclass(frozen=True, slots=True)
class Close:
    """Close the engine and leave."""


@dataclass(frozen=True, slots=True)
class Built:
    """The engine stands; every setting in force. `closing_s`: what it needs beyond the usual."""

    info: EngineInfo
    closing_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Encoded:
    """Token ids of the texts, in their order."""

    token_ids: list[list[int]]


@dataclass(frozen=True, slots=True)
class Judged:
    """In the order of the questions."""

    judgements: list[Judgement]


@dataclass(frozen=True, slots=True)
class Progress:
    """How a running cell stands; sent four times a second. `None`: it is warming up."""

    key: CellKey
    snapshot: CellSnapshot | None


@dataclass(frozen=True, slots=True)
class CellDone:
    """A cell has ended; `interrupted` when `Stop` ended it. The rows are in the run folder."""

    key: CellKey
    interrupted: bool
    snapshot: CellSnapshot


@dataclass(frozen=True, slots=True)
class Failed:
    """A command failed. `mistake`: the user's, in one sentence; `disk`: nothing can be written."""

    kind: FailureKind
    error: str


Command = Build | Encode | Judge | RunCell | Stop | Close
Answer = Built | Encoded | Judged | CellDone | Failed


def is_disk_full(error: BaseException | None) -> bool:
    """Whether `error` says that the run folder takes no more."""
    return isinstance(error, OSError) and error.errno in _DISK_FULL
