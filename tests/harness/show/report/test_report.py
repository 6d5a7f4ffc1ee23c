"""What a reader is told: the finding, what it may be credited to, and every name in full."""

from __future__ import annotations

from dataclasses import replace

import pytest

from engines.api import ModelInfo, RequestStats, StepEvents
from harness.results.file import close_run
from harness.results.values import RunFile
from harness.show.report import comparison_text, finding, report_text

LOOP_STATIC = ("loop", {"policy": "static", "max_num_seqs": 4, "block_size": 16})
CONTINUOUS = (
    "continuous",
    {"policy": "chunked", "max_num_seqs": 4, "block_size": 16, "max_num_batched_tokens": 512},
)
STATIC = ("static", {"max_batch_size": 4})


def run_of(player, engines, *, rounds: int = 5, settings=None, gap_s: float = 0.0) -> RunFile:
    """`engines` {label: ((name, settings), seconds a token)}; `gap_s` between arrivals."""
    for number in range(1, rounds + 1):
        for label, ((name, values), pace_s) in engines.items():
            requests = [player.request(f"r{i:02}", at=i * gap_s, out=3) for i in range(20)]
            events = []
            for request in requests:
                start_s = request.scheduled_s + 0.001 * number
                times_s = [start_s + pace_s * i for i in (1, 2, 3)]
                events += player.answer(request.request_id, times_s, RequestStats(queue_s=0.0))
            info = player.info(name, values)
            player.record(requests, events, engine=label, number=number, info=info)
    return close_run(player.folder, settings or {"engine_order": list(engines)}, {})


def told(run: RunFile) -> str:
    return " ".join(finding(run))


def test_batching_is_credited_only_when_the_scheduler_alone_differs(player):
    run = run_of(player, {"s": (LOOP_STATIC, 0.2), "c": (CONTINUOUS, 0.1)})
    assert "that holds is the scheduler's" in told(run)
    assert "c against s" in told(run)
    assert "95% interval" in told(run)


def test_static_against_continuous_is_said_to_mix_two_causes(player):
    run = run_of(player, {"s": (STATIC, 0.2), "c": (CONTINUOUS, 0.1)})
    assert "mixes runtime and scheduler" in told(run)
    assert "loop[policy=static]" in told(run)
    assert "that holds is the scheduler's" not in told(run)


def test_a_whole_gain_is_split_where_the_engine_in_between_was_run(player):
    engines = {"s": (STATIC, 0.4), "ls": (LOOP_STATIC, 0.2), "c": (CONTINUOUS, 0.1)}
    text = told(run_of(player, engines))
    assert "c against s" in text
    assert "Of this the runtime (ls against s) is 2.0" in text
    assert "and the scheduler (c against ls) is 1.9" in text
    assert "mixes runtime and scheduler" not in text


def test_a_pair_is_not_split_without_the_engine_in_between(player):
    assert "Of this" not in told(run_of(player, {"s": (STATIC, 0.4), "c": (CONTINUOUS, 0.1)}))


def in_regions(engine):
    name, settings = engine
    return name, settings | {"allocator": "contiguous", "reserve": "max"}


def in_blocks(engine):
    name, settings = engine
    return name, settings | {"allocator": "paged", "reserve": None}


def test_memory_is_credited_only_when_the_allocator_alone_differs(player):
    run = run_of(player, {"m": (in_regions(CONTINUOUS), 0.2), "c": (in_blocks(CONTINUOUS), 0.1)})
    text = told(run)
    assert "c against m" in text
    assert "c and m share runtime and policy and differ in how memory is allocated: a" in text
    assert "that holds is the memory's" in text
    assert "scheduler's" not in text
    assert "nothing is credited to the memory" not in text


def test_other_settings_that_differ_take_the_memorys_credit_away(player):
    wide = (CONTINUOUS[0], {**in_blocks(CONTINUOUS)[1], "max_num_seqs": 64})
    text = told(run_of(player, {"m": (in_regions(CONTINUOUS), 0.2), "c": (wide, 0.1)}))
    assert "but also in max_num_seqs (4 and 64), so not all of a difference is the memory's" in text


def test_nothing_is_credited_to_the_memory_where_policy_and_allocator_differ_at_once(player):
    orca = ("loop", {**in_regions(CONTINUOUS)[1], "policy": "orca"})
    engines = {"s": (in_blocks(LOOP_STATIC), 0.3), "c": (in_blocks(CONTINUOUS), 0.1)}
    text = told(run_of(player, engines | {"o": (orca, 0.2)}))
    assert "that holds is the scheduler's" in text
    assert "memory's" not in text
    assert "(contiguous and paged), but no pair differs in that alone" in text
    assert "once more with allocator=paged" in text


def test_two_engines_that_differ_in_policy_and_memory_are_credited_with_neither(player):
    run = run_of(player, {"s": (in_blocks(LOOP_STATIC), 0.3), "c": (in_regions(CONTINUOUS), 0.2)})
    assert "nothing is credited to batching" in told(run)
    assert "nothing is credited to the memory" in told(run)


def test_a_whole_gain_is_split_into_all_three_where_the_engines_in_between_were_run(player):
    engines = {
        "g": (STATIC, 0.8),
        "s": (in_regions(LOOP_STATIC), 0.4),
        "m": (in_regions(CONTINUOUS), 0.2),
        "c": (in_blocks(CONTINUOUS), 0.1),
    }
    text = told(run_of(player, engines))
    assert "c against g" in text
    parts = text[text.index("Of this the runtime (s against g) is ") :]
    assert ", the scheduler (m against s) is " in parts
    assert " and the memory (c against m) is 1.9" in parts
    assert "m against g" in text, "a gain of two parts"
    assert "memory's" in text
    assert "scheduler's" in text


def test_other_settings_that_differ_take_the_credit_away(player):
    wide = (CONTINUOUS[0], {**CONTINUOUS[1], "max_num_seqs": 64})
    run = run_of(player, {"s": (LOOP_STATIC, 0.2), "c": (wide, 0.1)})
    assert "max_num_seqs (4 and 64)" in told(run)
    assert "not all of a difference is the scheduler's" in told(run)


def test_what_went_against_continuous_is_told(player):
    run = run_of(player, {"s": (LOOP_STATIC, 0.1), "c": (CONTINUOUS, 0.2)})
    assert "Against c: " in told(run)
    assert "p95 TPOT 2.00x" in told(run)


def test_few_rounds_are_marked_and_not_judged(player):
    run = run_of(player, {"s": (LOOP_STATIC, 0.2), "c": (CONTINUOUS, 0.1)}, rounds=1)
    assert "(one round), not judged" in told(run)


def test_below_saturation_latency_decides_and_throughput_is_not_a_ratio(player):
    run = run_of(player, {"s": (LOOP_STATIC, 0.02), "c": (CONTINUOUS, 0.01)}, gap_s=1.0)
    assert "both kept up with the arrivals, so latency decides" in told(run)
    assert "output tokens per second" not in told(run)
    assert "output tokens per second:" not in comparison_text(run)


def test_who_is_offered_more_than_it_did_all_at_once_has_not_kept_up(player):
    run = run_of(player, {"s": (LOOP_STATIC, 0.02), "c": (CONTINUOUS, 0.01)}, gap_s=1.0)
    most = {"s": 0.5, "c": 5.0}
    burst = tuple(
        replace(
            cell,
            load="burst",
            load_kind="at_once",
            request_throughput_req_s=most[cell.engine],
        )
        for cell in run.results
    )
    settings = run.settings | {"loads": [{"name": run.loads()[0], "request_rate": 1.0}]}
    known = replace(run, results=run.results + burst, settings=settings)
    assert "(s did not keep up with the arrivals)" in told(known)
    assert "both kept up" in told(run)


def test_at_saturation_throughput_decides_beside_p95(player):
    run = run_of(player, {"s": (LOOP_STATIC, 0.2), "c": (CONTINUOUS, 0.1)})
    assert "throughput decides" in told(run)
    assert "p95 TTFT" in told(run)


def test_a_simulation_says_that_it_is_one(player):
    settings = {"simulated": True}
    run = run_of(player, {"s": (LOOP_STATIC, 0.2)}, settings=settings)
    assert "simulation in virtual time" in told(run)


def test_no_name_or_number_is_cut_whatever_the_width(player):  # V2
    labels = [f"continuous[max_num_seqs={2**i},block_size=16]-{'x' * 40}" for i in range(8)]
    run = run_of(
        player, {label: (CONTINUOUS, 0.1 * (i + 1)) for i, label in enumerate(labels)}, rounds=1
    )
    texts = [comparison_text(run, width) for width in (None, 20, 80, 2000)]
    for text in texts:
        assert all(label in text for label in labels)
        assert "\x1b" not in text
        assert "..." not in text
    numbers = sorted(word for word in texts[1].split() if word[0].isdigit())
    for text in texts:
        assert sorted(word for word in text.split() if word[0].isdigit()) == numbers


def test_a_table_is_used_where_it_fits(player):
    run = run_of(player, {"s": (LOOP_STATIC, 0.2), "c": (CONTINUOUS, 0.1)}, rounds=1)
    wide = comparison_text(run, 2000).splitlines()
    header = next(line for line in wide if line.startswith("engine"))
    assert "output tok/s" in header
    assert "p95" in header


def test_markup_and_foreign_letters_are_shown_literally(player):  # V1, V5
    run = run_of(
        player, {"[/cb] | \u00e9": (LOOP_STATIC, 0.2), "c\nd": (CONTINUOUS, 0.1)}, rounds=1
    )
    text = comparison_text(run, encoding="ascii")
    assert text.isascii()
    assert "[/cb] | \\xe9" in text
    assert "c\\nd" in text
    report = report_text(run)
    assert "`[/cb] \\| \u00e9`" in report
    assert comparison_text(run).startswith("At load")


def test_our_own_words_need_only_ascii(player):
    run = run_of(player, {"s": (STATIC, 0.2), "c": (CONTINUOUS, 0.1)})
    assert report_text(run).isascii()


def test_the_report_says_everything_that_a_comparison_must_record(player):
    settings = {
        "workload": {"name": "chat", "seed": 7, "hash": "h" * 64, "clipped": {"prompt": 3}},
        "loads": [{"name": "load", "request_rate": "inf", "max_concurrency": None}],
        "engine_order": ["s", "c"],
        "goodput": "ttft:500",
    }
    run = run_of(player, {"s": (LOOP_STATIC, 0.2), "c": (CONTINUOUS, 0.1)}, settings=settings)
    report = report_text(run)
    for words in (
        "max active sequences: `4`",
        "token budget of a step: `512`",
        "token budget of a step: `none (policy static)`",
        "KV allocation: `paged",
        "preemption: ",
        "request rate inf",
        "h" * 64,
        "seed `7`",
        "prompt tokens: mean",
        "output tokens asked for: mean",
        "ttft <= 500 ms",
        "## Token ledger",
        "## Verdict",
        "## Outcomes",
        "ok/offered",
        "E2E p95 ms",
    ):
        assert words in report, words


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (0, "- warm-up: none"),
        (
            2,
            "- warm-up before each cell: 2 requests with prompts of their own, whole before an "
            "engine's first cell, answers cut to 8 tokens before its later ones",
        ),
    ],
)
def test_the_report_says_how_an_engine_was_warmed_up(player, number, words):
    settings = {"num_warmups": number, "later_warmup_tokens": 8}
    run = run_of(player, {"s": (LOOP_STATIC, 0.2)}, rounds=1, settings=settings)
    assert words in report_text(run).splitlines()


def test_the_ledger_is_shown_in_shares_of_what_was_executed(player):
    row = player.step(1, 0.0, 1.0, prompt=2, output=1, padding=1, useful_rows=2)
    stats = RequestStats(first_time_prompt=2, first_time_output=1)
    events = [StepEvents(1.0, step=row), *player.answer("a", [0.5, 1.0], stats)]
    player.record([player.request("a", out=2)], events)
    report = report_text(close_run(player.folder, {}, {}))
    assert "| `fake`, `load` | 4 | 50.0% | 25.0% | 0.0% | 25.0% | 0.0% | 0.0% |" in report
    assert "| 50.0% | n/a | 25.0% | SUSPECT |" in report  # slots, KV, padding


def test_the_memory_is_told_by_cause_and_absent_where_nobody_knows(player):
    row = player.step(
        *(1, 0.0, 1.0),
        num_running=3,
        tokens_held=20,
        tokens_reserved=50,
        lost_inside_blocks=5,
        lost_to_reservation=25,
        lost_to_fragmentation=10,
    )
    stats = RequestStats(num_preemptions=1, swapped_tokens=1024, prefix_hit_tokens=1)
    events = [StepEvents(1.0, step=row), *player.answer("a", [0.5, 1.0], stats)]
    model = ModelInfo("m", 99, 99, (), (), 0, kv_bytes_per_token=2048, dtype="x", device="cpu")
    info = replace(player.info(kv_tokens=100), model=model)
    player.record([player.request("a", out=2)], events, info=info)
    report = report_text(close_run(player.folder, {}, {}))
    line = "| `fake`, `load` | 3.00 | 3.00 | 50.0% | 40.0% | 5.0% | 25.0% | 10.0% | 2.00 |"
    assert line in report.splitlines()


def test_without_steps_there_is_no_section_on_memory(player):
    assert "## Memory" not in report_text(run_of(player, {"s": (STATIC, 0.2)}))


def test_the_report_says_how_long_a_region_is(player):
    engines = {"m": (in_regions(CONTINUOUS), 0.2), "c": (in_blocks(CONTINUOUS), 0.1)}
    report = report_text(run_of(player, engines, rounds=1))
    assert "KV allocation: `contiguous (reserve=max), in blocks of 16`" in report
    assert "KV allocation: `paged, in blocks of 16`" in report


def test_thin_quantiles_are_marked_with_a_legend(player):
    run = run_of(player, {"s": (LOOP_STATIC, 0.2)}, rounds=1)
    text = comparison_text(run)
    assert "* too few samples" in text
    row = next(line for line in text.splitlines() if "TTFT p95" in line)
    assert row.endswith("*")


@pytest.mark.parametrize("rounds", [1, 5])
def test_throughput_never_stands_without_p95(player, rounds):
    run = run_of(player, {"s": (LOOP_STATIC, 0.2), "c": (CONTINUOUS, 0.1)}, rounds=rounds)
    heads = [line for line in report_text(run).splitlines() if "output tok/s" in line]
    assert heads
    assert all("TTFT p95" in line for line in heads)


def hits_run(player, settings, hits):
    """One request of ten prompt tokens, `hits` of them found in a cache."""
    stats = RequestStats(queue_s=0.0, prefix_hit_tokens=hits)
    events = player.answer("a", [0.1, 0.2, 0.3], stats)
    info = player.info("continuous", settings)
    player.record([player.request("a", prompt=10)], events, engine="e", info=info)
    workload = {"name": "talks", "seed": 0, "sessions": 3, "shared_prompt_share": 0.625}
    loads = [{"name": "load", "request_rate": "inf", "max_concurrency": None}]
    return close_run(player.folder, {"workload": workload, "loads": loads}, {})


@pytest.mark.parametrize(
    ("keeps", "hits", "shown"), [(True, 4, "40.0%"), (True, 0, "0.0%"), (False, 0, None)]
)
def test_prefix_hits_are_shown_where_an_engine_keeps_prefixes(player, keeps, hits, shown):
    run = hits_run(player, {"prefix_caching": keeps}, hits)
    assert run.results[0].prefix_hit_share == hits / 10
    rows = [line.split("|") for line in report_text(run).splitlines() if line.startswith("|")]
    heads = [row for row in rows if " verdict " in row]
    assert heads
    for head in heads:
        assert (" prefix hits " in head) is (shown is not None)
        if shown:
            column = head.index(" prefix hits ")
            assert {row[column].strip() for row in rows if row[1] == " `e` "} == {shown}
    assert ("prefix hits" in comparison_text(run)) is (shown is not None)


def test_sessions_and_what_prompts_have_in_common_are_told(player):
    text = report_text(hits_run(player, {}, 0))
    assert "3 sessions, each request a turn of one" in text
    assert "62.5% of prompt tokens begin another prompt too" in text
    assert "all sessions begin at t0, a turn comes when the one before it has ended" in text
