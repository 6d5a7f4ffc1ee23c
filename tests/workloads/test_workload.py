from __future__ import annotations

import math
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from engines.api import CbbenchError, ModelInfo
from workloads.outlines import shared_share
from workloads.workload import (
    ModelLimits,
    Workload,
    check_draw,
    draw,
    fresh_prompts,
    open_workload,
    warmup_requests,
    workload_hash,
)

WriteFile = Callable[[str, str], Path]
GOLDEN = "f81f70fc477de3c48eb5d52946b4b303b27f1b647b716fefeced5390ba0a54ac"
DRAW_IN_A_PROCESS = """
from workloads.workload import ModelLimits, draw, open_workload
limits = ModelLimits(4096, 4096, (0, 1, 2))
print(draw(open_workload("chat-mix"), seed=0, limits=limits).hash)
"""
AZURE = "azure_llm_2023_conv_min00-15.csv"
HEADER = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
PRESET = """num_prompts = 2

[[components]]
prompt = { kind = "uniform", low = 4, high = 8 }
output = { kind = "uniform", low = 4, high = 8 }

[[loads]]
kind = "all-at-once"
"""


def lengths(workload: Workload) -> list[tuple[int, int | None]]:
    return [(len(r.prompt_token_ids), r.max_tokens) for r in workload.requests]


def times(workload: Workload) -> list[float]:
    return [request.scheduled_s for request in workload.requests]


def test_hash_is_what_it_was_when_first_written() -> None:
    golden_limits = ModelLimits(4096, 4096, (0, 1, 2))
    assert draw(open_workload("chat-mix"), seed=0, limits=golden_limits).hash == GOLDEN


def test_hash_is_equal_in_another_process_with_another_hash_seed() -> None:
    printed = subprocess.run(
        [sys.executable, "-c", DRAW_IN_A_PROCESS],
        env={**os.environ, "PYTHONHASHSEED": "12345"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert printed.stdout.strip() == GOLDEN


def test_hash_covers_tokens_lengths_arrivals_and_burstiness(chat_mix: Workload) -> None:
    first, *rest = chat_mix.requests
    ids = first.prompt_token_ids
    changes = [
        replace(first, prompt_token_ids=(*ids[:-1], ids[-1] ^ 1)),
        replace(first, prompt_token_ids=ids[:-1]),
        replace(first, max_tokens=(first.max_tokens or 0) + 1),
        replace(first, max_tokens=None),
        replace(first, scheduled_s=1e-9),
    ]
    hashes = {workload_hash([changed, *rest], 1.0) for changed in changes}
    hashes |= {workload_hash(chat_mix.requests, 2.0), workload_hash(rest, 1.0), chat_mix.hash}
    assert len(hashes) == len(changes) + 3
    assert workload_hash(chat_mix.requests, 1.0) == chat_mix.hash


def with_priorities(write: WriteFile, *priorities: str) -> Workload:
    """The plain preset, with a component for each line `priority = n`."""
    head, component, rest = PRESET.partition("[[components]]")
    body, loads, end = rest.partition("[[loads]]")
    parts = "".join(f"{component}\n{line}{body}" for line in priorities)
    text = head.replace("2", "40") + parts + loads + end
    config = open_workload(str(write("mine.toml", text)))
    return draw(config, seed=0, limits=ModelLimits(4096, 4096))


def test_requests_have_the_priorities_of_their_components(write: WriteFile) -> None:
    drawn = with_priorities(write, "priority = 5", "priority = -1", "")
    assert list(drawn.priorities) == [-1, 0, 5]
    assert sum(drawn.priorities.values()) == 40


def test_turns_of_a_session_have_one_priority(limits: ModelLimits, write: WriteFile) -> None:
    sessions = '[sessions]\nturns = { kind = "fixed", value = 3 }\nat_once = 2\n'
    head, component, rest = PRESET.replace("= 2", "= 30", 1).partition("[[components]]")
    first = component + rest.partition("[[loads]]")[0]
    both = f"{head}{sessions}{first}{component}\npriority = 3{rest}"
    drawn = draw(open_workload(str(write("mine.toml", both))), seed=0, limits=limits)
    of_session: dict[str | None, set[int]] = {}
    for request in drawn.requests:
        of_session.setdefault(request.session, set()).add(request.priority)
    assert all(len(found) == 1 for found in of_session.values())
    assert set.union(*of_session.values()) == {0, 3}


def test_hash_covers_priorities_and_is_what_it_was_without_them(write: WriteFile) -> None:
    none, zero = with_priorities(write, ""), with_priorities(write, "priority = 0")
    assert zero.hash == none.hash
    assert len({none.hash, *(with_priorities(write, f"priority = {n}").hash for n in (1, 2))}) == 3


def test_fewer_requests_are_the_beginning_of_more(limits: ModelLimits) -> None:
    config = open_workload("chat-mix")
    more = draw(config, seed=0, limits=limits, num_prompts=60)
    assert draw(config, seed=0, limits=limits, num_prompts=20).requests == more.requests[:20]


def test_preset_decides_the_number_of_requests(chat_mix: Workload) -> None:
    assert len(chat_mix.requests) == chat_mix.settings["num_prompts"]
    assert len({request.request_id for request in chat_mix.requests}) == len(chat_mix.requests)
    assert chat_mix.requests[0].scheduled_s == 0.0
    assert {request.request_class for request in chat_mix.requests} == {"chat", "retrieval"}


def test_changing_one_thing_leaves_the_others(limits: ModelLimits, chat_mix: Workload) -> None:
    config = open_workload("chat-mix")
    other = draw(config, seed=0, limits=limits, output_len=7, burstiness=0.5)
    assert [r.prompt_token_ids for r in other.requests] == [
        r.prompt_token_ids for r in chat_mix.requests
    ]
    assert {r.max_tokens for r in other.requests} == {7}
    assert times(other) != times(chat_mix)
    shorter = draw(config, seed=0, limits=limits, input_len=20)
    assert times(shorter) == times(chat_mix)
    assert [r.max_tokens for r in shorter.requests] == [r.max_tokens for r in chat_mix.requests]
    for short, long in zip(shorter.requests, chat_mix.requests, strict=True):
        assert (
            short.prompt_token_ids == long.prompt_token_ids[:20] or len(long.prompt_token_ids) < 20
        )


def test_lengths_given_by_hand_are_spread_by_the_range_ratio(limits: ModelLimits) -> None:
    drawn = draw(
        open_workload("uniform"),
        seed=0,
        limits=limits,
        num_prompts=300,
        input_len=10,
        output_len=10,
        range_ratio=0.2,
    )
    assert {prompt for prompt, _ in lengths(drawn)} == {8, 9, 10, 11, 12}
    assert {output for _, output in lengths(drawn)} == {8, 9, 10, 11, 12}


def test_another_seed_changes_everything(limits: ModelLimits, chat_mix: Workload) -> None:
    other = draw(open_workload("chat-mix"), seed=1, limits=limits)
    assert lengths(other) != lengths(chat_mix)
    assert times(other)[1:] != times(chat_mix)[1:]
    assert other.hash != chat_mix.hash


def test_requests_fit_a_small_context_and_clipping_is_counted() -> None:
    small = ModelLimits(4096, 48)
    drawn = draw(open_workload("chat-mix"), seed=0, limits=small)
    assert all(prompt + (output or 0) <= 48 for prompt, output in lengths(drawn))
    assert drawn.clipped["prompt"] > 10
    assert drawn.clipped["output"] > 0


def test_first_tokens_of_all_prompts_differ(chat_mix: Workload) -> None:
    assert len({r.prompt_token_ids[0] for r in chat_mix.requests}) == len(chat_mix.requests)


def test_limits_count_end_of_text_as_special() -> None:
    info = ModelInfo("m", 100, 64, (2, 5), (0, 2), 1, 1, "float32", "cpu")
    assert ModelLimits.of(info) == ModelLimits(100, 64, (0, 2, 5))


def test_settings_tell_that_no_bos_is_added(chat_mix: Workload, limits: ModelLimits) -> None:
    assert chat_mix.settings["adds_bos"] is False
    constant = draw(open_workload("uniform"), seed=0, limits=limits, burstiness=math.inf)
    assert constant.settings["burstiness"] == "inf"
    assert [load.name for load in constant.default_loads] == ["all-at-once", "constant-70%"]
    assert times(constant) == [float(i) for i in range(32)]


def test_warmup_has_the_length_mix_but_no_token_or_id_in_common(
    chat_mix: Workload, limits: ModelLimits
) -> None:
    warmup = warmup_requests(chat_mix, 8, limits)
    pairs = [(len(r.prompt_token_ids), r.max_tokens) for r in warmup]
    assert len(warmup) == 8
    assert set(pairs) <= set(lengths(chat_mix))
    longest = max(p + (o or 0) for p, o in lengths(chat_mix))
    assert max(p + (o or 0) for p, o in pairs) == longest
    begins = {r.prompt_token_ids[:2] for r in chat_mix.requests}
    assert not begins & {r.prompt_token_ids[:2] for r in warmup}
    assert not {r.request_id for r in chat_mix.requests} & {r.request_id for r in warmup}
    assert {r.scheduled_s for r in warmup} == {0.0}
    assert warmup == warmup_requests(chat_mix, 8, limits)


def test_warmup_comes_in_a_drawn_order(chat_mix: Workload, limits: ModelLimits) -> None:
    """Not by length, so that a short warm-up's first batch is a mix too; each seed has its own."""
    sizes = [len(r.prompt_token_ids) for r in warmup_requests(chat_mix, 16, limits)]
    assert sizes != sorted(sizes)
    assert sizes != sorted(sizes, reverse=True)
    reseeded = warmup_requests(replace(chat_mix, seed=1), 16, limits)
    assert sizes != [len(r.prompt_token_ids) for r in reseeded]
    assert sorted(sizes) == sorted(len(r.prompt_token_ids) for r in reseeded)


@pytest.mark.parametrize("count", [0, 1, 2, 100])
def test_warmup_can_have_any_number_of_requests(
    chat_mix: Workload, limits: ModelLimits, count: int
) -> None:
    warmup = warmup_requests(chat_mix, count, limits)
    assert len({r.request_id for r in warmup}) == count


def test_fresh_prompts_keep_lengths_and_arrivals_and_repeat_no_prompt(
    chat_mix: Workload, limits: ModelLimits
) -> None:
    generations = [fresh_prompts(chat_mix, i, limits) for i in range(4)]
    assert generations[0] is chat_mix
    assert len({g.hash for g in generations}) == 4
    begins = {r.prompt_token_ids[:2] for g in generations for r in g.requests}
    assert len(begins) == 4 * len(chat_mix.requests)
    for generation in generations:
        assert lengths(generation) == lengths(chat_mix)
        assert times(generation) == times(chat_mix)


def test_trace_without_a_count_gives_all_its_rows_in_order(
    write: WriteFile, limits: ModelLimits
) -> None:
    rows = "".join(f"2023-11-16 18:15:{i:02d}.5,{i + 1},{2 * i + 1}\n" for i in range(15))
    config = open_workload(f"trace:{write('t.csv', HEADER + rows)}")
    drawn = draw(config, seed=0, limits=limits)
    assert lengths(drawn) == [(i + 1, 2 * i + 1) for i in range(15)]
    assert times(drawn) == [float(i) for i in range(15)]
    assert drawn.own_times
    assert drawn.base_rate == 1.0
    assert drawn.settings["burstiness"] is None
    first = draw(config, seed=0, limits=limits, num_prompts=4)
    assert lengths(first) == lengths(drawn)[:4]


def test_trace_scale_stretches(write: WriteFile, limits: ModelLimits) -> None:
    rows = "".join(f"2023-11-14 22:13:20.{i},5,5\n" for i in (4, 0, 2))
    config = open_workload(f"trace:{write('t.csv', HEADER + rows)}")
    assert times(draw(config, seed=0, limits=limits, trace_scale=2.0)) == [0.0, 0.4, 0.8]
    assert draw(config, seed=0, limits=limits, trace_scale=0.5).base_rate == 10.0


def test_trace_rows_of_no_tokens_and_of_too_many_are_clipped_and_counted(
    write: WriteFile, limits: ModelLimits
) -> None:
    rows = "".join(f"2023-11-16 18:15:00,{p},{o}\n" for p, o in [(0, 0), (5000, 96), (7, 9000)])
    drawn = draw(open_workload(f"trace:{write('t.csv', HEADER + rows)}"), seed=0, limits=limits)
    assert lengths(drawn) == [(1, 1), (4000, 96), (1, 4095)]
    assert drawn.clipped == {"prompt": 3, "output": 2}
    assert drawn.base_rate == math.inf


def test_real_trace_keeps_its_lengths_and_times(real_traces: Path) -> None:
    roomy = ModelLimits(4096, 16_384)
    drawn = draw(open_workload(f"trace:{real_traces / AZURE}"), seed=0, limits=roomy)
    assert len(drawn.requests) == 4424
    assert sum(prompt for prompt, _ in lengths(drawn)) == 5_188_168
    assert sum(output or 0 for _, output in lengths(drawn)) == 1_125_283
    assert drawn.clipped == {"prompt": 0, "output": 0}
    assert times(drawn)[:2] == [0.0, 4.314579]
    assert drawn.base_rate == pytest.approx(4423 / 899.881888)
    assert [load.name for load in drawn.default_loads] == ["trace"]


def characters(texts: list[str]) -> list[list[int]]:
    return [[ord(character) for character in text] for text in texts]


def test_texts_are_encoded_by_the_function_handed_in(write: WriteFile, limits: ModelLimits) -> None:
    path = write("p.jsonl", '{"prompt": "ab", "max_tokens": 3}\n{"prompt": "c"}\n')
    config = open_workload(f"jsonl:{path}")
    assert config.needs_encode
    drawn = draw(config, seed=0, limits=limits, encode=characters)
    assert [r.prompt_token_ids for r in drawn.requests] == [(97, 98), (99,)]
    assert [r.max_tokens for r in drawn.requests] == [3, 128]
    assert drawn.settings["adds_bos"] is None
    assert fresh_prompts(drawn, 3, limits) is drawn
    assert len(warmup_requests(drawn, 2, limits)) == 2
    forced = draw(config, seed=0, limits=limits, output_len=9, encode=characters)
    assert [r.max_tokens for r in forced.requests] == [9, 9]


def test_text_is_never_cut_but_its_answer_is(write: WriteFile) -> None:
    lines = (
        '{"prompt": "abcdef", "max_tokens": 9}\n{"prompt": "abcdefghijkl"}\n'
        '{"prompt": "abcdefghij", "max_tokens": 7}\n'
    )
    config = open_workload(f"jsonl:{write('p.jsonl', lines)}")
    drawn = draw(config, seed=0, limits=ModelLimits(200, 10), encode=characters)
    assert lengths(drawn) == [(6, 4), (12, 128), (10, 7)]
    assert drawn.clipped == {"prompt": 0, "output": 1}


def test_texts_need_a_tokenizer_that_makes_tokens(write: WriteFile, limits: ModelLimits) -> None:
    path = write("p.jsonl", '{"prompt": "ab"}')
    config = open_workload(f"jsonl:{path}")
    with pytest.raises(CbbenchError, match="needs a model's tokenizer"):
        draw(config, seed=0, limits=limits)
    with pytest.raises(CbbenchError, match="line 1: the model's tokenizer makes no token"):
        draw(config, seed=0, limits=limits, encode=lambda texts: [[] for _ in texts])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_prompts": 0}, "0 prompts make no workload"),
        ({"num_prompts": -3}, "-3 prompts make no workload"),
        ({"seed": -1}, "seed -1 cannot be used"),
        ({"input_len": 0}, "a length of 0"),
        ({"output_len": -1}, "a length of -1"),
        ({"input_len": 8, "range_ratio": 1.0}, "a range ratio of 1"),
        ({"range_ratio": 0.5}, "spreads nothing"),
        ({"burstiness": 0.0}, "a burstiness of 0"),
        ({"burstiness": math.nan}, "a burstiness of nan"),
        ({"trace_scale": 2.0}, "no times of its own"),
        ({"trace_scale": 0.0}, "a trace scale of 0"),
        ({"trace_scale": math.inf}, "a trace scale of inf"),
        ({"trace_scale": math.nan}, "a trace scale of nan"),
    ],
)
def test_option_without_meaning_is_refused(
    limits: ModelLimits, options: dict[str, float], message: str
) -> None:
    with pytest.raises(CbbenchError, match=message):
        draw(open_workload("uniform"), **{"seed": 0, "limits": limits, **options})  # type: ignore[arg-type]
    with pytest.raises(CbbenchError, match=message):
        check_draw(open_workload("uniform"), **{"seed": 0, **options})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_prompts": 2}, "has 1 rows, 2 prompts were asked for"),
        ({"input_len": 5}, "has its own input length; got 5"),
        ({"output_len": 5}, "has its own output length; got 5"),
        ({"burstiness": 2.0}, "has its own burstiness; got 2"),
    ],
)
def test_trace_refuses_what_it_has_itself(
    write: WriteFile, limits: ModelLimits, options: dict[str, int], message: str
) -> None:
    path = write("t.csv", HEADER + "2023-11-16 18:15:00,5,5\n")
    config = open_workload(f"trace:{path}")
    with pytest.raises(CbbenchError, match=message):
        draw(config, seed=0, limits=limits, **options)  # type: ignore[arg-type]
    with pytest.raises(CbbenchError, match=message):
        check_draw(config, seed=0, **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_prompts": 2}, "has 1 prompts, 2 prompts were asked for"),
        ({"input_len": 5}, "has its own input length; got 5"),
        ({"trace_scale": 2.0}, "no times of its own"),
        ({"output_len": 8, "range_ratio": 0.5}, "a range ratio of 0.5 spreads nothing"),
    ],
)
def test_texts_refuse_what_they_cannot_take(
    write: WriteFile, options: dict[str, float], message: str
) -> None:
    path = write("p.jsonl", '{"prompt": "ab"}')
    with pytest.raises(CbbenchError, match=message):
        check_draw(open_workload(f"jsonl:{path}"), seed=0, **options)  # type: ignore[arg-type]


def test_context_too_small_for_anything_is_refused() -> None:
    with pytest.raises(CbbenchError, match="a context of 1 tokens"):
        draw(open_workload("uniform"), seed=0, limits=ModelLimits(100, 1))


@pytest.mark.parametrize("spec", ["trace:", "jsonl:"])
def test_spec_without_a_path_is_refused(spec: str) -> None:
    with pytest.raises(CbbenchError, match="names no file"):
        open_workload(spec)


@pytest.mark.parametrize(
    ("kind", "name", "text"),
    [
        ("trace:", "t.csv", HEADER + "2023-11-16 18:15:46.5,5,5\n"),
        ("jsonl:", "p.jsonl", '{"prompt": "a"}\n'),
        ("", "mine.toml", PRESET),
    ],
)
def test_a_workload_is_named_by_its_file_without_the_folder(
    write: WriteFile, limits: ModelLimits, kind: str, name: str, text: str
) -> None:
    config = open_workload(f"{kind}{write(name, text)}")
    drawn = draw(config, seed=0, limits=limits, encode=lambda texts: [[9] for _ in texts])
    assert drawn.name == drawn.settings["workload"] == f"{kind}{name}"


def test_preset_file_is_opened_by_its_path(write: WriteFile) -> None:
    with pytest.raises(CbbenchError, match="no key 'num_prompts'"):
        open_workload(str(write("mine.toml", "")))
    with pytest.raises(CbbenchError, match="unknown workload 'share:gpt'"):
        open_workload("share:gpt")


def draw_preset(name: str, limits: ModelLimits, **options: int) -> Workload:
    return draw(open_workload(name), seed=0, limits=limits, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(("name", "share"), [("shared-prefix", 0.757), ("multi-turn", 0.578)])
def test_prompts_that_share_say_how_much(name: str, share: float, limits: ModelLimits) -> None:
    drawn = draw_preset(name, limits)
    assert drawn.shared_prompt_share == pytest.approx(share, abs=0.002)
    assert draw(open_workload(name), seed=0, limits=limits).hash == drawn.hash
    for cold in ("chat-mix", "uniform", "stall-probe"):
        assert draw_preset(cold, limits).shared_prompt_share == 0.0


def test_texts_that_begin_alike_share_too(write: WriteFile, limits: ModelLimits) -> None:
    path = write("p.jsonl", '{"prompt": "abc"}\n{"prompt": "abd"}\n')
    config = open_workload(f"jsonl:{path}")
    drawn = draw(config, seed=0, limits=limits, encode=characters)
    assert drawn.shared_prompt_share == pytest.approx(2 / 6)


def test_turns_of_a_session_carry_its_name_and_begin_with_the_turn_before(
    limits: ModelLimits,
) -> None:
    drawn = draw_preset("multi-turn", limits)
    assert drawn.num_sessions == 13
    last: dict[str | None, tuple[int, ...]] = {}
    for request in drawn.requests:
        before = last.get(request.session, ())
        assert request.prompt_token_ids[: len(before)] == before
        last[request.session] = request.prompt_token_ids
    assert len(last) == 13
    assert times(drawn) == sorted(times(drawn))
    assert draw_preset("shared-prefix", limits).num_sessions == 0


def test_hash_covers_whose_turn_it_is(limits: ModelLimits) -> None:
    drawn = draw_preset("multi-turn", limits)
    swapped = [
        replace(r, session={"s00000": "s00001", "s00001": "s00000"}.get(r.session or "", r.session))
        for r in drawn.requests
    ]
    alone = [replace(r, session=None) for r in drawn.requests]
    hashes = {workload_hash(requests, 1.0) for requests in (drawn.requests, swapped, alone)}
    assert drawn.hash in hashes
    assert len(hashes) == 3


def test_fresh_prompts_share_among_themselves_and_nothing_with_others(limits: ModelLimits) -> None:
    for name in ("shared-prefix", "multi-turn"):
        drawn = draw_preset(name, limits)
        fresh = [fresh_prompts(drawn, i, limits) for i in range(3)]
        for generation in fresh:
            assert lengths(generation) == lengths(drawn)
            assert share_of(generation) == pytest.approx(drawn.shared_prompt_share)
        begins = [{r.prompt_token_ids[:2] for r in generation.requests} for generation in fresh]
        assert not begins[0] & begins[1] | begins[0] & begins[2] | begins[1] & begins[2]


def share_of(workload: Workload) -> float:
    return shared_share([request.prompt_token_ids for request in workload.requests])


def test_several_clients_of_one_seed_send_prompts_of_their_own(limits: ModelLimits) -> None:  # L3
    drawn = draw_preset("chat-mix", limits, num_prompts=10)
    clients = [fresh_prompts(drawn, client, limits) for client in range(4)]
    prompts = [r.prompt_token_ids for client in clients for r in client.requests]
    assert len(set(prompts)) == 40
    assert shared_share(prompts) == 0.0
    again = draw_preset("chat-mix", limits, num_prompts=10)
    assert fresh_prompts(again, 3, limits).requests == clients[3].requests


@pytest.mark.parametrize("name", ["shared-prefix", "multi-turn"])
def test_one_input_length_cannot_make_prompts_of_parts(name: str, limits: ModelLimits) -> None:
    with pytest.raises(CbbenchError, match="makes prompts of parts"):
        draw_preset(name, limits, input_len=5)
    assert {pair[1] for pair in lengths(draw_preset(name, limits, output_len=7))} == {7}
