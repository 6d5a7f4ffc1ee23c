"""The parts that policies are put together from, and the settings that name them.

Any order goes with any admission, victim and way of preemption; a policy says when to use them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, cast

from engines.api import JsonValue
from engines.loop.plan import PreemptMode
from engines.loop.policies.admission import (
    WHOLE_PROMPT,
    Admission,
    FullReservation,
    PredictedPeak,
    Watermark,
)
from engines.loop.policies.orders import (
    FIRST_COME,
    PRIORITY,
    SHORTEST_JOB,
    SHORTEST_REMAINING,
    Fair,
    Order,
    Share,
)
from engines.loop.policies.victims import (
    LEAST_PROGRESS,
    LOWEST_PRIORITY,
    MOST_BLOCKS,
    NEWEST,
    Victim,
)
from engines.registry import Setting
from engines.settings import fraction, one_of, positive_int


@dataclass(frozen=True, slots=True)
class Rules:
    """`victim` of `None`: the newest, or under an order that preempts, who is ranked last."""

    order: Order = FIRST_COME
    admission: Admission = WHOLE_PROMPT
    victim: Victim | None = None
    preemption: PreemptMode = "recompute"


_ORDERS: Final = {
    order.name: order for order in (FIRST_COME, PRIORITY, SHORTEST_JOB, SHORTEST_REMAINING, Fair())
}
_VICTIMS: Final = {
    victim.name: victim for victim in (NEWEST, LOWEST_PRIORITY, LEAST_PROGRESS, MOST_BLOCKS)
}
MAX_NUM_SEQS: Final = Setting(
    "max_num_seqs", positive_int, 16, "the most requests resident at once"
)
ORDER_SETTINGS: Final = (
    Setting(
        "order",
        one_of(*_ORDERS),
        "fcfs",
        "who comes first: fcfs; priority (the smallest number, takes the place of larger ones); "
        "sjf (shortest prompt + answer); srpt (shortest remaining, takes the place of longer "
        "ones; both know the lengths: a bound, not a product); fair (least served, see fair_by)",
    ),
    Setting("fair_by", one_of("class", "client"), "class", "whose share order=fair levels out"),
)
MEMORY_SETTINGS: Final = (
    Setting(
        "admission",
        one_of("prompt", "watermark", "full", "peak"),
        "prompt",
        "what must fit before a request comes in: its prompt; its prompt with a watermark left "
        "free; its longest answer too, taken at once; the predicted peak of all",
    ),
    Setting("watermark", fraction, 0.01, "share of blocks that admission=watermark leaves free"),
    Setting(
        "victim",
        one_of("auto", *_VICTIMS),
        "auto",
        "who is preempted when memory runs out; auto: the newest, with order=priority or srpt "
        "the last in order",
    ),
    Setting(
        "preemption",
        one_of("recompute", "swap"),
        "recompute",
        "what a preempted request keeps: nothing, or a copy of its cache on the host",
    ),
)


def order_from(settings: Mapping[str, JsonValue]) -> Order:
    name = cast(str, settings["order"])
    return Fair(cast(Share, settings["fair_by"])) if name == "fair" else _ORDERS[name]


def rules_from(settings: Mapping[str, JsonValue]) -> Rules:
    return Rules(
        order=order_from(settings),
        admission=_admission_from(settings),
        victim=_VICTIMS.get(cast(str, settings["victim"])),
        preemption=cast(PreemptMode, settings["preemption"]),
    )


def _admission_from(settings: Mapping[str, JsonValue]) -> Admission:
    match settings["admission"]:
        case "watermark":
            return Watermark(cast(float, settings["watermark"]))
        case "full":
            return FullReservation()
        case "peak":
            return PredictedPeak()
    return WHOLE_PROMPT
