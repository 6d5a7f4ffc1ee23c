"""plans.jsonl: what is written is what is read, whatever was cut or came behind it."""

from __future__ import annotations

import json
import math

import pytest

from engines.api import BLOCKED, END, CbbenchError, EngineInfo, ModelInfo, Request
from engines.loop.executors.api import PaddingRow, StepResult
from engines.loop.plan import Plan
from engines.loop.plan_log import Look, Turn
from engines.loop.replay import Difference, Replay
from harness.plans import PLANS_FILE, PlanLog, PlanTap, read_plan_log
from harness.plans.again import CellReplay, replay_lines
from harness.records import CellKey

MODEL = ModelInfo("m", 4096, 96, (2,), (0, 1), 10, 64, "float32", "cpu")
INFO = EngineInfo("loop", {"policy": "chunked", "num_blocks": 12}, 96, 4, model=MODEL)
KEY = CellKey("e", "all-at-once", 1)
FULL = Request("a b", (1, 2, 3), 7, 0.1 + 0.2, stop_token_ids=(9,), priority=-3, session="s")
TURNS = [
    Turn(Look(1 / 3, [FULL, Request("\u00fc", (4,), None, ignore_eos=False)], (), math.inf)),
    Turn(Look(0.5, [], ("a b", "stranger"), BLOCKED), Plan(wait_until=math.inf)),
    Turn(Look(0.6, [], (), 0.7), Plan(wait_until=0.1 + 0.7)),
    Turn(
        Look(0.9, [Request("a b", (5,), 1)], (), END),
        Plan(
            preempt={"a b": "swap"},
            resume={"\u00fc": 4},
            admit={"\u00fc": 0, "a b": 9},
            work={"\u00fc": 3, "a b": 1},
            lookahead={"a b": 2},
            padding=(PaddingRow(1, 5),),
        ),
        StepResult([[], [7, 8]], [0, 1], [0, 2], 0.1, 0.2, 0.3),
        1.1,
    ),
    Turn(Look(1.2, [], (), END), Plan(work={"a b": 1}), StepResult([[5]]), 1.3),
]


def write(folder, key=KEY, turns=TURNS) -> None:
    log = PlanLog(folder, key, "loop[policy=chunked]", INFO)
    for turn in turns:
        log.turn(turn)
    log.close()


def plain(turn: Turn) -> tuple[object, ...]:
    """Without the difference of lists and tuples; sampling is not kept."""
    look = turn.look
    looked = (look.now_s, list(look.arrived), list(look.cancelled), look.next_due)
    return looked, turn.plan, turn.result, turn.delivered_s


def test_turns_come_back_as_they_were(tmp_path):
    write(tmp_path)
    (cell,) = read_plan_log(tmp_path)
    assert (cell.key, cell.info) == (KEY, INFO)
    assert [plain(turn) for turn in cell.turns()] == [plain(turn) for turn in TURNS]
    assert [list(turn.plan.work) for turn in cell.turns() if turn.plan and turn.plan.work] == [
        ["\u00fc", "a b"],
        ["a b"],
    ]


def test_the_file_is_strict_json_in_ascii(tmp_path):
    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is not JSON")

    write(tmp_path)
    for line in (tmp_path / PLANS_FILE).read_text("ascii").splitlines():
        json.loads(line, parse_constant=refuse)


def test_cells_stand_one_behind_the_other(tmp_path):
    other = CellKey("f", "poisson", 2)
    write(tmp_path)
    write(tmp_path, other, TURNS[:2])
    first, second = read_plan_log(tmp_path)
    assert (first.key, second.key) == (KEY, other)
    assert (len(list(first.turns())), len(list(second.turns()))) == (5, 2)


def test_half_a_line_of_a_killed_engine_costs_that_line_alone(tmp_path):
    write(tmp_path)
    path = tmp_path / PLANS_FILE
    path.write_bytes(path.read_bytes()[:-20])
    write(tmp_path, CellKey("f", "poisson", 2))
    first, second = read_plan_log(tmp_path)
    assert [plain(turn) for turn in first.turns()] == [plain(turn) for turn in TURNS[:-1]]
    assert len(list(second.turns())) == 5


def test_an_engine_that_plans_nothing_leaves_no_file(tmp_path):
    write(tmp_path, turns=[])
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(CbbenchError, match=r"found no plans\.jsonl.*--save-plans"):
        read_plan_log(tmp_path)


def test_turns_are_kept_only_while_a_cell_is_measured(tmp_path):
    tap = PlanTap()
    tap.turn(TURNS[0])
    tap.log = PlanLog(tmp_path, KEY, "loop", INFO)
    tap.turn(TURNS[1])
    log, tap.log = tap.log, None
    tap.turn(TURNS[2])
    log.close()
    (cell,) = read_plan_log(tmp_path)
    assert [plain(turn)[0][0] for turn in cell.turns()] == [0.5]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('{"v":99,"key":["e","l",1],"spec":"","info":{}}', "version 99, expected 1"),
        ('{"v":1,"key":["e"],"spec":"","info":{}}', "a cell's first line has another form"),
    ],
)
def test_a_file_of_another_form_is_refused(tmp_path, line, words):
    (tmp_path / PLANS_FILE).write_text(line + "\n")
    with pytest.raises(CbbenchError, match=words):
        read_plan_log(tmp_path)


@pytest.mark.parametrize("line", ['{"t":1}', '{"t":1,"due":"end","p":{"work":[[5,1]]}}', "[1]"])
def test_a_turn_of_another_form_is_refused_or_ends_the_log(tmp_path, line):
    write(tmp_path, turns=TURNS[:1])
    path = tmp_path / PLANS_FILE
    path.write_text(path.read_text() + line + "\n")
    (cell,) = read_plan_log(tmp_path)
    if line == "[1]":
        assert len(list(cell.turns())) == 1
    else:
        with pytest.raises(CbbenchError, match="a turn of 'e' has another form"):
            list(cell.turns())


def test_a_replay_is_told_a_line_a_cell_and_the_parts_that_differ():
    logged = Plan(admit={"a": 0}, work={"a": 1, "b": 2})
    planned = Plan(admit={"a": 0}, work={"b": 2, "a": 1}, wait_until=3.0)
    replays = [
        CellReplay(KEY, Replay(12, 10)),
        CellReplay(KEY, Replay(4, 3, Difference(3, 1.5, logged, planned))),
        CellReplay(KEY, Replay(0, 0, Difference(0, 0.0, None, planned))),
        CellReplay(KEY, Replay(0, 0, Difference(0, 0.0, logged, None, "why"))),
    ]
    assert replay_lines(replays) == [
        "e, all-at-once, round 1: identical, 12 plans in 10 steps and 2 waits",
        "e, all-at-once, round 1: differs after 4 plans in 3 steps and 1 wait",
        "  step 3, planned at 1.500000 s",
        "  work: a 1, b 2 in the log, b 2, a 1 now",
        "  wait_until: nothing in the log, 3.0 now",
        "e, all-at-once, round 1: differs after 0 plans in 0 steps and 0 waits",
        "  step 0, planned at 0.000000 s: nobody to plan for in the log, a plan now",
        "e, all-at-once, round 1: differs after 0 plans in 0 steps and 0 waits",
        "  step 0, planned at 0.000000 s: why",
    ]


def test_long_parts_are_cut():
    names = {f"r{i}": 1 for i in range(20)}
    difference = Difference(0, 0.0, Plan(work=names), Plan(work={}))
    text = "\n".join(replay_lines([CellReplay(KEY, Replay(0, 0, difference))]))
    assert "r7 1 and 12 more in the log, nothing now" in text
