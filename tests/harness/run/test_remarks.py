"""Rules in force that find all requests alike are told, others are not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from engines.api import EngineInfo
from harness.run.remarks import idle_rules
from workloads.workload import ModelLimits, Workload, draw, open_workload


@pytest.fixture(scope="module")
def alike() -> Workload:
    return draw(open_workload("uniform"), seed=0, limits=ModelLimits(256, 512), num_prompts=4)


def changed(workload: Workload, **fields) -> Workload:
    """The first request is another's."""
    first, *others = workload.requests
    return replace(workload, requests=(replace(first, **fields), *others))


def told(workload: Workload, **settings) -> list[str]:
    infos = {"a": EngineInfo("loop", settings, 512, 8), "plain": EngineInfo("loop", {}, 512, 8)}
    return idle_rules(infos, workload)


RULES = [
    ({"order": "priority"}, {"priority": 1}, "order=priority decides as fcfs would"),
    ({"victim": "lowest-priority"}, {"priority": -1}, "decides as newest would"),
    ({"order": "fair", "fair_by": "class"}, {"request_class": "b"}, "of one class"),
    ({"order": "fair", "fair_by": "client"}, {"session": "b"}, "are one client's"),
]


@pytest.mark.parametrize(("settings", "fields", "sentence"), RULES)
def test_a_rule_with_nothing_to_go_by_is_told_with_its_engine(alike, settings, fields, sentence):
    if "session" in fields:
        requests = tuple(replace(r, session="a") for r in alike.requests)
        alike = replace(alike, requests=requests)
    (remark,) = told(alike, **settings)
    assert remark.startswith("a: all requests of uniform ")
    assert sentence in remark
    assert told(changed(alike, **fields), **settings) == []


def test_requests_without_sessions_are_one_clients(alike):
    assert len(told(alike, order="fair", fair_by="client")) == 1


@pytest.mark.parametrize("order", ["fcfs", "sjf", "srpt"])
def test_other_rules_need_nothing(alike, order):
    assert told(alike, order=order, fair_by="client", victim="newest") == []
