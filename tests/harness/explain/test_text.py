"""What `explain` says: the worst stalls in order, and one request's story."""

from __future__ import annotations

import pytest

from engines.api import CbbenchError, Request, RequestStats
from harness.explain.stalls import causes, worst_stalls
from harness.explain.story import story_lines
from harness.explain.text import names, ordinal, stall_lines
from harness.records import read_cells

POOL = "num_blocks=25,block_size=4,max_num_seqs=8,max_num_batched_tokens=64"


def request(name: str, prompt: int, answer: int, at_s: float = 0.0, label: str = "") -> Request:
    tokens = tuple(range(1, prompt + 1))
    return Request(name, tokens, answer, scheduled_s=at_s, request_class=label)


@pytest.fixture
def cell(simulate):
    """`b` is preempted for `a` and computed again; `late` waits; `big` is refused."""
    requests = [
        request("a", 16, 60),
        request("b", 16, 60, 0.4, "chat"),
        request("late", 60, 3, 0.5),
        request("big", 90, 30, 0.5),
    ]
    return simulate(f"mine=continuous[{POOL}]", requests)


def test_the_longest_stall_comes_first_and_ten_at_most(player):
    requests = [player.request(f"r{i}", out=3) for i in range(14)]
    events = []
    for i, one in enumerate(requests):
        events += player.answer(one.request_id, [0.5 + i / 100, 1.0 + i / 100, 3.0 + i / 10])
    cell = player.cell(requests, events)
    worst = worst_stalls([cell])
    assert [stall.requests[0].request_id for stall in worst] == [f"r{i}" for i in range(13, 3, -1)]
    assert [round(stall.length_s, 2) for stall in worst[:2]] == [3.17, 3.08]


def test_requests_that_stood_still_together_share_a_stall(player):
    requests = [player.request(name, out=3) for name in "abc"]
    events = [
        *player.answer("a", [1.0, 2.0, 5.0], RequestStats(max_stall_cause="prefill")),
        *player.answer("b", [1.5, 2.0, 5.0], RequestStats(max_stall_cause="prefill")),
        *player.answer("c", [1.5, 2.0, 5.0], RequestStats(max_stall_cause="token_budget")),
    ]
    cell = player.cell(requests, events)
    first, second = worst_stalls([cell])
    assert [r.request_id for r in first.requests] == ["a", "b"]
    assert (second.cause, second.length_s) == ("token_budget", 3.0)
    assert causes([cell]) == {"prefill": 2, "token_budget": 1}


def test_stalls_of_all_cells_are_ranked_together(player):
    for engine, pause_s in (("quick", 1.0), ("slow", 4.0)):
        events = player.answer("a", [1.0, 1.0 + pause_s])
        player.record([player.request("a")], events, engine=engine)
    assert [s.cell.key.engine for s in worst_stalls(read_cells(player.folder))] == ["slow", "quick"]


def test_a_stall_is_told_with_its_place_cause_and_settings(cell):
    lines = stall_lines([cell])
    assert lines[0] == "longest stalls of requests by cause: preemption 2, prefill 1"
    first = lines.index(next(line for line in lines if line.startswith(" 1. ")))
    assert "late, after its 1st token event, in mine, load, round 1" in lines[first]
    assert "cause preemption: preempted, and computed again" in lines[first + 1]
    assert lines[first + 2] == "    shorter with num_blocks=50: more keys and values fit"
    assert any("b, after its 19th token event" in line for line in lines)
    assert any("others' prompts ran: 16 tokens of b in 1 step" in line for line in lines)
    waits = [line for line in lines if line.startswith("the longest wait for a first token")]
    assert len(waits) == 1
    assert "late in mine" in waits[0]
    assert lines[-1] == "    shorter with num_blocks=50: more keys and values fit"


def test_one_that_was_swapped_out_is_not_said_to_be_computed_again(simulate):
    requests = [request("a", 16, 60), request("b", 16, 60, 0.4), request("late", 60, 3, 0.5)]
    lines = stall_lines([simulate(f"continuous[{POOL},preemption=swap]", requests)])
    told = [line for line in lines if "cause preemption" in line]
    assert told
    assert all("preempted, and came back with its cache (" in line for line in told)


def test_a_run_without_stalls_says_so(player):
    cell = player.cell([player.request("a", out=1)], player.answer("a", [1.0]))
    assert stall_lines([cell]) == ["nobody stood still: no request had two token events"]


def test_an_engine_that_tells_nothing_has_its_stalls_told_as_far_as_they_go(player):
    cell = player.cell([player.request("a")], player.answer("a", [1.0, 2.0, 4.0]))
    text = "\n".join(stall_lines([cell]))
    assert "cause not told: the engine does not tell" in text
    assert "the longest wait for a first token: 1.000 s, a in fake" in text


def test_the_story_of_a_preempted_request_is_told_in_order(cell):
    lines = story_lines([cell], "b")
    told = [line.split(" s  ", 1)[1] for line in lines if " s  " in line]
    assert lines[0] == (
        "b in mine, load, round 1: 16 prompt tokens, 60 of 60 asked for, class chat"
    )
    assert told[0] == "arrives; 1 run (a), nobody waits"
    assert told[1].startswith("admitted at step ")
    assert told[2].startswith("first token, 0.0")
    assert "its prompt computed in 1 step" in told[2]
    (stalls,) = [line for line in told if line.startswith("its longest stall begins")]
    assert stalls.endswith("without a token, cause preemption")
    (preempted,) = [line for line in told if line.startswith("preempted for the 1st time, for ")]
    assert preempted.endswith("(0 of 25 blocks were free, 2 requests ran)")
    assert told[-1].startswith("ends (length), ")
    (spent,) = [line for line in lines if line.startswith("  its time: ")]
    assert all(f"{kind} " in spent for kind in ("queue", "prefill", "decode", "preempted"))
    assert "    shorter with num_blocks=50: more keys and values fit" in lines
    times = [float(line.split(" s  ")[0]) for line in lines if " s  " in line]
    assert times == sorted(times)


def test_who_waits_is_told_behind_whom(cell, simulate):
    (arrives, admitted, *_) = [line for line in story_lines([cell], "late") if " s  " in line]
    assert "arrives; 2 run (a, b), nobody waits" in arrives
    assert " in the queue" in admitted
    simulate.folder = simulate.folder / "other"
    requests = [request(f"r{i}", 4, 3) for i in range(9)]
    full = simulate("loop[policy=static,num_blocks=50,max_num_seqs=3]", requests)
    lines = story_lines([full], "r7")
    assert "arrives; 3 run (r0, r1, r2), behind 4 that wait (r3, r4, r5 and 1 more)" in lines[1]
    assert "admitted at step 6" in lines[2]


def test_a_prompt_in_pieces_is_told_so(simulate):
    cell = simulate("continuous[num_blocks=50,max_num_batched_tokens=8]", [request("a", 30, 2)])
    assert "its prompt computed in 4 steps" in "\n".join(story_lines([cell], "a"))


def test_ends_that_are_not_ok_are_told_with_their_reason(cell, simulate):
    lines = story_lines([cell], "big")
    assert lines[-1].split(" s  ")[1].startswith("rejected: prompt 90 + max_tokens 30 need 30")
    simulate.folder = simulate.folder / "other"
    stopped = simulate(
        "continuous[num_blocks=50,max_num_seqs=1]",
        [request("a", 4, 90), request("b", 4, 9)],
        stop_at=5,
    )
    lines = story_lines([stopped], "b")
    assert "cancelled: the run was stopped" in lines[2]
    assert lines[3].startswith("  its time: queue 0.")


def test_a_story_is_told_for_each_engine_once(cell, simulate):
    again = simulate(f"mine=continuous[{POOL}]", [request("b", 4, 3)], number=2)
    other = simulate(f"other=continuous[{POOL}]", [request("b", 4, 3)])
    lines = story_lines([cell, again, other], "b")
    titles = [line.split(":")[0] for line in lines if line.startswith("b in ")]
    assert titles == ["b in mine, load, round 1", "b in other, load, round 1"]
    assert lines[-1].startswith("it is in 1 more cell; choose with --engine")


def test_an_unknown_request_is_told_with_those_there_are(cell):
    with pytest.raises(CbbenchError, match="no request is called 'x'; expected one of a, b, late"):
        story_lines([cell], "x")


def test_outside_text_stays_on_its_line(player):
    name = "a\n\x1b[31m"
    cell = player.cell([player.request(name)], player.answer(name, [1.0, 2.0]))
    for line in [*stall_lines([cell]), *story_lines([cell], name)]:
        assert "\n" not in line
        assert "\x1b" not in line


@pytest.mark.parametrize(
    ("number", "word"), [(1, "1st"), (2, "2nd"), (3, "3rd"), (4, "4th"), (11, "11th"), (22, "22nd")]
)
def test_ordinals(number, word):
    assert ordinal(number) == word


def test_long_lists_of_names_are_cut(player):
    requests = [player.request(f"r{i}") for i in range(5)]
    cell = player.cell(requests, [])
    assert names(cell.requests) == "r0, r1, r2 and 2 more"
