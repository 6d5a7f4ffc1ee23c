"""How turns become lines: the form of plans.jsonl, for its writer and its reader.

    first of a cell  {"v": 1, "key": [...], "spec": ..., "info": {...}}
    a turn           {"t": now, "due": ..., "a": [arrivals], "c": [gone], "p": {plan}, "x": {step}}
    an arrival       [id, [prompt], max_tokens, scheduled_s, ignore_eos, [stops], priority, class,
                      session]
    a plan           {"preempt": [[request, mode]], "resume": [[request, n]],
                      "admit": [[request, n]], "work": [[request, n]], "look": [[request, n]],
                      "pad": [[n, context]], "until": time}
    a step           {"at": delivered, "k": [tokens of each row], "acc", "drf": [n], "s": [prepare,
                      compute, copy]}

A request is its place among the cell's arrivals, or its id as text when it never arrived. `due` is
a time, "inf", "blocked" or "end". A row with one token is that token, others are lists. What is
empty is left out. How tokens were sampled is not kept: plans do not depend on it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from engines.api import BLOCKED, END, Blocked, Due, End, Request, RequestId
from engines.loop.executors.api import PaddingRow, StepResult
from engines.loop.plan import Plan
from engines.loop.plan_log import Look, Turn

PLANS_VERSION: Final = 1
_INF: Final = "inf"


class TurnEncoder:
    """The lines of one cell, in order: it numbers the requests as they arrive."""

    def __init__(self) -> None:
        self._numbers: dict[RequestId, int] = {}
        self._arrivals = 0

    def encode(self, turn: Turn) -> dict[str, Any]:
        look = turn.look
        for request in look.arrived:
            self._numbers.setdefault(request.request_id, self._arrivals)
            self._arrivals += 1
        line: dict[str, Any] = {"t": look.now_s, "due": _due(look.next_due)}
        if look.arrived:
            line["a"] = [_arrival(request) for request in look.arrived]
        if look.cancelled:
            line["c"] = self._names(look.cancelled)
        if turn.plan is not None:
            line["p"] = self._plan(turn.plan)
        if turn.result is not None:
            line["x"] = _step(turn.result, turn.delivered_s)
        return line

    def _plan(self, plan: Plan) -> dict[str, Any]:
        until_s = plan.wait_until
        parts: dict[str, Any] = {
            "preempt": self._pairs(plan.preempt),
            "resume": self._pairs(plan.resume),
            "admit": self._pairs(plan.admit),
            "work": self._pairs(plan.work),
            "look": self._pairs(plan.lookahead),
            "pad": [(row.num_tokens, row.context) for row in plan.padding],
        }
        said = {name: part for name, part in parts.items() if part}
        return (
            said if until_s is None else said | {"until": _INF if until_s == math.inf else until_s}
        )

    def _names(self, names: Iterable[RequestId]) -> list[int | str]:
        return [self._numbers.get(name, name) for name in names]

    def _pairs(self, values: Mapping[RequestId, Any]) -> list[tuple[int | str, Any]]:
        return [(self._numbers.get(name, name), value) for name, value in values.items()]


class TurnDecoder:
    """The reverse, for the lines of one cell in order.

    Raises `KeyError`, `TypeError`, `ValueError` or `IndexError` for a line of another form.
    """

    def __init__(self) -> None:
        self._ids: list[RequestId] = []

    def decode(self, line: Mapping[str, Any]) -> Turn:
        arrived = [_request(values) for values in line.get("a", ())]
        self._ids += [request.request_id for request in arrived]
        look = Look(float(line["t"]), arrived, self._all(line.get("c", ())), _due_of(line["due"]))
        plan = self._plan(line["p"]) if "p" in line else None
        if "x" not in line:
            return Turn(look, plan)
        step = line["x"]
        return Turn(look, plan, _result(step), float(step["at"]))

    def _plan(self, parts: Mapping[str, Any]) -> Plan:
        until = parts.get("until")
        return Plan(
            preempt=self._mapping(parts, "preempt"),
            resume=self._mapping(parts, "resume"),
            admit=self._mapping(parts, "admit"),
            work=self._mapping(parts, "work"),
            lookahead=self._mapping(parts, "look"),
            padding=tuple(PaddingRow(n, context) for n, context in parts.get("pad", ())),
            wait_until=None if until is None else float(until),
        )

    def _mapping(self, parts: Mapping[str, Any], name: str) -> dict[RequestId, Any]:
        return {self._id(number): value for number, value in parts.get(name, ())}

    def _all(self, numbers: Iterable[int | str]) -> tuple[RequestId, ...]:
        return tuple(self._id(number) for number in numbers)

    def _id(self, number: int | str) -> RequestId:
        return number if isinstance(number, str) else self._ids[number]


def _arrival(request: Request) -> list[Any]:
    return [
        request.request_id,
        request.prompt_token_ids,
        request.max_tokens,
        request.scheduled_s,
        request.ignore_eos,
        request.stop_token_ids,
        request.priority,
        request.request_class,
        request.session,
    ]


def _request(values: Sequence[Any]) -> Request:
    name, prompt, max_tokens, scheduled_s, ignore_eos, stops, priority, label, session = values
    return Request(
        request_id=name,
        prompt_token_ids=tuple(prompt),
        max_tokens=max_tokens,
        scheduled_s=float(scheduled_s),
        ignore_eos=ignore_eos,
        stop_token_ids=tuple(stops),
        priority=priority,
        request_class=label,
        session=session,
    )


def _due(due: Due) -> float | str:
    if isinstance(due, End):
        return "end"
    if isinstance(due, Blocked):
        return "blocked"
    return _INF if due == math.inf else due


def _due_of(text: float | str) -> Due:
    match text:
        case "end":
            return END
        case "blocked":
            return BLOCKED
        case _:
            return float(text)


def _step(result: StepResult, delivered_s: float | None) -> dict[str, Any]:
    step: dict[str, Any] = {
        "at": delivered_s,
        "k": [ids[0] if len(ids) == 1 else list(ids) for ids in result.tokens],
        "s": [result.prepare_s, result.compute_s, result.copy_s],
    }
    if result.accepted is not None:
        step["acc"] = list(result.accepted)
    if result.drafted is not None:
        step["drf"] = list(result.drafted)
    return step


def _result(step: Mapping[str, Any]) -> StepResult:
    prepare_s, compute_s, copy_s = step["s"]
    return StepResult(
        tokens=[ids if isinstance(ids, list) else [ids] for ids in step["k"]],
        accepted=step.get("acc"),
        drafted=step.get("drf"),
        prepare_s=prepare_s,
        compute_s=compute_s,
        copy_s=copy_s,
    )
