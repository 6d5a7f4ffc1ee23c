"""What the master and its workers say to each other, as plain values for locust's own channel.

    master   Prepare -> worker   Prepared      draw, connect, warm up
             Ping    ->          Pong          how far apart the two clocks are
             Begin   ->          Begun         t0, on the worker's clock
             Ack     <-          Report        what was handed out, what has ended; numbered
             End     ->          Report(last)  the run ends now

A beginning and a report are sent again until they are acknowledged, and count once. Every message
names its run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, fields
from typing import Any, Final

from harness.locust_load.exchange import Answer
from harness.locust_load.options import PromptForm
from harness.locust_load.player import News, Row
from workloads.workload import ModelLimits


@dataclass(frozen=True, slots=True)
class Prepare:
    """The worker's place among the workers, and what the master found out for all."""

    run: str
    worker: int
    workers: int
    vocab_size: int
    max_model_len: int
    special_token_ids: Sequence[int]
    prompt_form: PromptForm

    @property
    def limits(self) -> ModelLimits:
        return ModelLimits(self.vocab_size, self.max_model_len, tuple(self.special_token_ids))


@dataclass(frozen=True, slots=True)
class Prepared:
    """`error` is a sentence when the worker cannot take part. `warmups` were answered."""

    run: str
    workload_hash: str = ""
    warmups: int = 0
    error: str = ""


@dataclass(frozen=True, slots=True)
class Ping:
    run: str
    sent_s: float


@dataclass(frozen=True, slots=True)
class Pong:
    """`sent_s` is the ping's, on the master's clock; `answered_s` is on the worker's."""

    run: str
    sent_s: float
    answered_s: float


@dataclass(frozen=True, slots=True)
class Begin:
    """`t0_s` on the worker's clock."""

    run: str
    t0_s: float


@dataclass(frozen=True, slots=True)
class Begun:
    run: str


@dataclass(frozen=True, slots=True)
class Report:
    """Numbered from 1 by each worker. After the `last` one it has nothing to tell any more."""

    run: str
    number: int
    news: News
    gc_pauses: int = 0
    gc_pause_s: float = 0.0
    last: bool = False


@dataclass(frozen=True, slots=True)
class Ack:
    run: str
    number: int


@dataclass(frozen=True, slots=True)
class End:
    """Hand nothing out any more; what is on its way has `grace_s`."""

    run: str
    grace_s: float


ToWorker = Prepare | Ping | Begin | Ack | End
ToMaster = Prepared | Pong | Begun | Report
Message = ToWorker | ToMaster
TO_WORKER: Final = (Prepare, Ping, Begin, Ack, End)
TO_MASTER: Final = (Prepared, Pong, Begun, Report)


def name_of(kind: type[Message]) -> str:
    """What locust calls a message of this kind."""
    return f"cbbench_{kind.__name__.lower()}"


def to_wire(message: Message) -> dict[str, Any]:
    """Numbers, texts, lists and dicts only."""
    if not isinstance(message, Report):
        return asdict(message)
    plain = {f.name: getattr(message, f.name) for f in fields(message) if f.name != "news"}
    arrivals = [list(arrival) for arrival in message.news.arrivals]
    return plain | {"arrivals": arrivals, "rows": [_row_to_wire(r) for r in message.news.rows]}


def from_wire(kind: type[Message], data: Mapping[str, Any]) -> Message:
    """The reverse of `to_wire`."""
    if kind is not Report:
        return kind(**data)
    plain = {name: value for name, value in data.items() if name not in ("arrivals", "rows")}
    news = News(
        arrivals=tuple((index, scheduled_s) for index, scheduled_s in data["arrivals"]),
        rows=tuple(map(_row_from_wire, data["rows"])),
    )
    return Report(news=news, **plain)


def _row_to_wire(row: Row) -> list[Any]:
    answer = [list(v) if isinstance(v, tuple) else v for v in astuple(row.answer)]
    return [row.index, row.scheduled_s, row.waited_s, answer]


def _row_from_wire(values: Sequence[Any]) -> Row:
    index, scheduled_s, waited_s, answer = values
    plain: list[Any] = [tuple(v) if isinstance(v, list) else v for v in answer]
    return Row(index, scheduled_s, waited_s, Answer(*plain))
