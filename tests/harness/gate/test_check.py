"""A run against a baseline: which case decides, what is refused, what stays undecided."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from engines.api import CbbenchError
from harness.gate.baseline import Baseline, read_baseline, updated_baseline
from harness.gate.check import check
from harness.gate.limits import Limits
from harness.gate.options import CheckOptions
from harness.gate.side import read_side
from harness.records import CellTrailer
from harness.results.file import close_run

FIVE = [10.0, 10.1, 9.9, 10.05, 9.95]
OTHER = {"cpu": "Other CPU", "cores_usable": 8}


def times(factor, values=FIVE):
    return [value * factor for value in values]


def checked(run, baseline, **options):
    limit = options.pop("limit", 0.05)
    options.setdefault("metrics", ("output_throughput_tok_s",))
    limits = Limits(limit, options.pop("max_increase_abs", 0.0))
    return check(read_side(run), read_baseline(baseline), CheckOptions(limits=limits, **options))


@pytest.mark.parametrize(
    ("factor", "outcome", "code"),
    [(1.0, "pass", 0), (0.8, "regression", 1), (0.95, "inconclusive", 3), (2.0, "pass", 0)],
)
def test_a_run_is_checked_against_a_folder_and_against_a_file(
    make_run, tmp_path, factor, outcome, code
):
    base, run = make_run("base", {"e": FIVE}), make_run("run", {"e": times(factor)})
    file = tmp_path / "main.json"
    file.write_text(updated_baseline(file, read_side(base)))
    for baseline in (base, base / "run.json", file):
        found = checked(run, baseline)
        assert (found.outcome, found.exit_code) == (outcome, code)


def test_the_worst_case_decides(make_run):
    base = make_run("base", {"a": FIVE, "b": FIVE, "c": FIVE})
    run = make_run("run", {"a": FIVE, "b": times(0.95), "c": times(0.5)})
    found = checked(run, base)
    outcomes = {f.engine: f.decision.outcome for f in found.findings if f.gates}
    assert outcomes == {"a": "pass", "b": "inconclusive", "c": "regression"}
    assert found.outcome == "regression"
    assert checked(run, base, engine="b").outcome == "inconclusive"
    assert checked(run, base, engine="a").outcome == "pass"


def test_tails_are_advisory_unless_asked(make_run):
    base, run = make_run("base", {"e": FIVE}), make_run("run", {"e": times(0.8)})
    only_rate = checked(run, base, metrics=("attainment",), limit=0.5, engine="e")
    assert {f.metric for f in only_rate.findings if not f.gates} == {
        *("ttft_s.p95", "tpot_s.p95", "e2e_s.p95", "max_stall_s.max")
    }
    assert only_rate.outcome == "inconclusive"
    assert checked(run, base, limit=0.22).outcome == "pass"
    assert checked(run, base, limit=0.22, gate_tails=True).outcome == "regression"
    assert checked(run, base, metrics=("ttft_s.p95",)).outcome == "regression"


def test_preemptions_that_appear_are_flagged(make_run):  # U1
    base = make_run("base", {"e": FIVE}, preemptions=[0] * 5)
    run = make_run("run", {"e": FIVE}, preemptions=[5] * 5)
    found = checked(run, base, metrics=("preemptions.total",))
    assert found.outcome == "regression"
    assert checked(run, base, metrics=("preemptions.total",), max_increase_abs=20).exit_code == 0
    unknown = make_run("unknown", {"e": FIVE})
    assert checked(unknown, base, metrics=("preemptions.total",)).exit_code == 3
    assert checked(run, unknown, metrics=("preemptions.total",)).exit_code == 3


def test_nothing_ok_is_a_regression_on_any_machine(make_run):  # U5
    run = make_run("run", {"e": [None] * 5})
    for name, environment in (("here", {"cpu": "Test CPU", "cores_usable": 2}), ("there", OTHER)):
        found = checked(run, make_run(name, {"e": FIVE}, environment=environment))
        assert found.exit_code == 1
        assert "nothing was ok: 0 of 20 requests" in found.findings[0].decision.reason


def test_no_request_at_all_is_no_regression_but_unusable(make_run):  # U5
    base = make_run("base", {"e": FIVE})
    with pytest.raises(CbbenchError, match="run has 0 requests"):
        checked(make_run("run", {}), base)


def test_a_case_without_a_request_is_unusable_beside_sound_ones(make_run):
    base = make_run("base", {"a": FIVE, "b": FIVE})
    run, options = read_side(base), CheckOptions(metrics=("ttft_s.p95",), limits=Limits(0.05))
    cases = (run.source.cases[0], replace(run.source.cases[1], offered=0, ok=0))
    empty = replace(run, source=replace(run.source, cases=cases))
    with pytest.raises(CbbenchError, match="base has 0 requests in 'b at all-at-once'"):
        check(empty, read_baseline(base), options)


def test_a_baseline_of_another_machine_is_inconclusive_with_what_to_do(make_run):
    run = make_run("run", {"e": times(0.1)})
    base = make_run("base", {"e": FIVE}, environment=OTHER)
    for options in ({}, {"relative_to": "e", "engine": None}):
        if options:
            run = make_run("two", {"e": FIVE, "f": FIVE})
        found = checked(run, base, **options)
        assert (found.exit_code, found.baseline) == (3, None)
        reason = found.findings[0].decision.reason
        assert "Other CPU, 8 cores, float32) than this one (Test CPU, 2 cores, float32)" in reason
        assert "cbbench baseline update" in reason


@pytest.mark.parametrize(
    "other",
    [
        {"environment": {"cpu": "Test CPU", "cores_usable": 4}},
        {"model_info": {"name": "tiny", "device": "cpu", "dtype": "bfloat16"}},
        {"model_info": {"name": "tiny", "device": "cuda", "device_name": "G", "dtype": "float32"}},
    ],
)
def test_cores_dtype_and_device_make_another_machine(make_run, other):
    base, run = make_run("base", {"e": FIVE}), make_run("run", {"e": FIVE}, **other)
    assert checked(run, base).exit_code == 3


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"workload": {"name": "chat", "hash": "def456"}}, "had other requests"),
        ({"workload": None}, "had other requests"),
        ({"model_info": {"name": "big", "device": "cpu", "dtype": "float32"}}, "of the model tiny"),
    ],
)
def test_other_requests_and_models_are_refused(make_run, changed, words):
    base, run = make_run("base", {"e": FIVE}), make_run("run", {"e": FIVE}, **changed)
    with pytest.raises(CbbenchError, match=words):
        checked(run, base)


def test_two_runs_without_a_hash_are_refused_too(make_run):
    run = make_run("run", {"e": FIVE}, workload=None)
    with pytest.raises(CbbenchError, match="had other requests"):
        checked(run, run)


def test_goodput_is_only_checked_at_the_same_bounds(make_run):
    base = make_run("base", {"e": FIVE}, goodput="ttft:500")
    run = make_run("run", {"e": FIVE}, goodput="ttft:900")
    assert checked(run, base).exit_code == 0
    with pytest.raises(CbbenchError, match="held to --goodput ttft:500, run to ttft:900"):
        checked(run, base, metrics=("goodput_req_s",))


def test_everything_that_is_missing_is_named_at_once(make_run):
    base, run = make_run("base", {"a": FIVE, "b": FIVE}), make_run("run", {"b": FIVE, "c": FIVE})
    with pytest.raises(CbbenchError) as error:
        checked(run, base)
    assert "the baseline base has no case 'c at all-at-once'" in str(error.value)
    assert "run has no case 'a at all-at-once'" in str(error.value)
    assert checked(run, base, engine="b").exit_code == 0
    with pytest.raises(CbbenchError, match="run has no case that was asked for"):
        checked(run, base, engine="a")
    with pytest.raises(CbbenchError, match="no case that was asked for; it has 'b at all-at-once'"):
        checked(run, base, load="all-at-onec")


def test_a_metric_that_nobody_knows_or_the_file_lacks_is_named(make_run, tmp_path):
    base = make_run("base", {"e": FIVE})
    file = tmp_path / "main.json"
    file.write_text(updated_baseline(file, read_side(base)))
    with pytest.raises(CbbenchError, match=r"unknown metric 'ttft_s.p59'; did you mean 'ttft_s.p"):
        checked(base, base, metrics=("ttft_s.p59",))
    with pytest.raises(CbbenchError, match=r"main.json has no metric 'queue_s.p95' of e at all-at"):
        checked(base, file, metrics=("queue_s.p95",))


def test_a_limit_that_nothing_can_reach_is_refused(make_run):
    base = make_run("base", {"e": FIVE})
    with pytest.raises(CbbenchError, match="less than 100%"):
        checked(base, base, limit=1.0)
    assert checked(base, base, metrics=("ttft_s.p95",), limit=1.0).exit_code == 0


@pytest.mark.parametrize(
    ("load", "words"),
    [
        ({"request_rate": 3.0, "max_concurrency": None}, "--request-rate"),
        ({"request_rate": "inf", "max_concurrency": 4}, "--max-concurrency"),
    ],
)
def test_a_load_that_was_played_otherwise_is_inconclusive(make_run, load, words):
    base = make_run("base", {"e": FIVE})
    run = make_run("run", {"e": FIVE}, loads=[{"name": "all-at-once"} | load])
    found = checked(run, base)
    assert found.exit_code == 3
    assert words in found.findings[0].decision.reason


def test_relative_to_an_engine_the_machine_falls_out(make_run):
    drift = [1.0, 0.7, 0.9, 1.1, 0.8, 1.0]
    steady = [1.0, 1.01, 0.99, 1.0, 1.01, 0.99]
    reference = [10 * d for d in drift]
    base = make_run("base", {"ref": reference, "e": [20 * d for d in drift]})
    slow_day = make_run(
        "day",
        {
            "ref": [0.5 * r for r in reversed(reference)],
            "e": [s * r for s, r in zip(steady, reversed(reference), strict=True)],
        },
    )
    assert checked(slow_day, base).exit_code == 1
    found = checked(slow_day, base, relative_to="ref")
    assert found.exit_code == 0
    assert [f.engine for f in found.findings if f.gates] == ["e"]
    assert found.findings[0].decision.baseline_value == pytest.approx(2.0)
    worse = make_run("worse", {"ref": reference, "e": [17 * d for d in drift]})
    assert checked(worse, base, relative_to="ref").exit_code == 1


def test_relative_to_nothing_is_refused_or_undecided(make_run):
    base = make_run("base", {"ref": FIVE, "e": FIVE})
    alone = make_run("alone", {"e": FIVE})
    with pytest.raises(CbbenchError, match="alone has no case 'ref at all-at-once' to be relative"):
        checked(alone, base, relative_to="ref")
    with pytest.raises(CbbenchError, match="alone has no case 'ref at all-at-once' to be relative"):
        checked(base, alone, relative_to="ref")
    with pytest.raises(CbbenchError, match="no case that was asked for"):
        checked(alone, alone, relative_to="e")
    broken = make_run("broken", {"ref": [None] * 5, "e": FIVE})
    found = checked(broken, base, relative_to="ref")
    assert found.exit_code == 3
    assert "ref in this run: nothing was ok" in found.findings[0].decision.reason
    half = make_run("half", {"ref": [*FIVE[:4], None], "e": FIVE})
    found = checked(half, base, relative_to="ref")
    assert found.exit_code == 3
    assert found.findings[0].decision.reason.startswith(
        "of ref in this run only 80.0% of the requests were ok"
    )


def altered(side, engine="e", **changes):
    """A side in which a case was otherwise."""
    cases = tuple(replace(c, **changes) if c.engine == engine else c for c in side.source.cases)
    return replace(side, source=replace(side.source, cases=cases))


def decided(run, baseline, metric="output_throughput_tok_s", **options):
    """Of two sides."""
    asked = CheckOptions(metrics=(metric,), limits=Limits(0.05), **options)
    return check(run, Baseline("base", (baseline,)), asked)


def reason(found):
    return found.findings[0].decision.reason


def test_an_engine_that_breaks_down_in_the_middle_does_not_pass(make_run, player):
    base = make_run("base", {"a": FIVE, "b": FIVE})
    run = make_run("run", {"a": [*FIVE, 10.0], "b": FIVE})
    crash = CellTrailer(end_s=0.1, error="killed by signal 9")
    type(player)(run).record(
        [player.request("r0", out=10)],
        [],
        engine="b",
        load="all-at-once",
        number=6,
        trailer=crash,
    )
    close_run(run)
    found = checked(run, base, engine="b")
    assert found.exit_code == 1
    assert reason(found).startswith("its engine broke down in 1 of 6 rounds")
    assert checked(run, base, engine="a").exit_code == 0
    elsewhere = make_run("elsewhere", {"a": FIVE, "b": FIVE}, environment=OTHER)
    assert checked(run, elsewhere, engine="b").exit_code == 1


def test_why_an_engine_has_no_case_is_told_where_the_run_knows_it(make_run):
    base = make_run("base", {"a": FIVE, "b": FIVE})
    failures = [{"engine": "a", "stage": "start", "error": "out of memory"}]
    run = make_run("run", {"b": FIVE}, failures=failures)
    with pytest.raises(CbbenchError, match=r"no case 'a at all-at-once' \(out of memory\)"):
        checked(run, base)


def test_an_engine_that_failed_between_rounds_does_not_pass(make_run):
    base = make_run("base", {"e": FIVE})
    failures = [{"engine": "e", "stage": "cell", "error": "out of memory"}]
    run = make_run("run", {"e": FIVE}, failures=failures)
    assert checked(run, base).exit_code == 1
    assert "its engine failed after 5 rounds (out of memory)" in reason(checked(run, base))
    assert checked(run, run).exit_code == 3
    assert "of the baseline: its engine failed" in reason(checked(run, run))


def test_an_engine_of_fewer_rounds_than_others_is_inconclusive(make_run):
    base = make_run("base", {"a": FIVE, "b": FIVE})
    run = make_run("run", {"a": [*FIVE, 10.0], "b": FIVE})
    found = checked(run, base)
    outcomes = {f.engine: f.decision.outcome for f in found.findings if f.gates}
    assert outcomes == {"a": "pass", "b": "inconclusive"}
    alone = checked(run, base, engine="b")
    assert "it has 5 rounds where others of this run have 6" in reason(alone)


@pytest.mark.parametrize(
    ("sick", "words", "strict"),
    [
        ({"ok_share": 0.5}, "only 50.0% of the requests were ok", False),
        ({"broken": 1}, "its engine broke down", False),
        ({"ended": False}, "came to its end", False),
        ({"suspect": 1}, "SUSPECT rounds of ref in", True),
    ],
)
@pytest.mark.parametrize("whose", ["this run", "the baseline"])
def test_a_sick_reference_decides_nothing(make_run, sick, words, strict, whose):
    sound = read_side(make_run("base", {"ref": FIVE, "e": FIVE}))
    slower = read_side(make_run("run", {"ref": times(0.5), "e": times(0.6)}))
    sound, slower = (altered(altered(s, suspect=0), "ref", suspect=0) for s in (sound, slower))
    assert decided(slower, sound, relative_to="ref", strict=strict).exit_code == 0
    run = altered(slower, "ref", **sick) if whose == "this run" else slower
    baseline = altered(sound, "ref", **sick) if whose == "the baseline" else sound
    found = decided(run, baseline, relative_to="ref", strict=strict)
    assert found.exit_code == 3
    assert words in reason(found)
    assert whose in reason(found)


def test_a_reference_that_changed_is_noted(make_run):
    base = make_run("base", {"ref": FIVE, "e": FIVE}, info={"rows": 4})
    run = make_run("run", {"ref": FIVE, "e": FIVE}, info={"rows": 8})
    notes = checked(run, base, relative_to="ref").notes
    assert "ref at all-at-once: settings differ: rows (4 and 8)" in notes


@pytest.mark.parametrize(
    ("values", "outcome", "words"),
    [
        ((math.inf,) * 5, "regression", "infinite in every round"),
        ((0.5,) * 4 + (math.inf,), "inconclusive", "2.0% of the requests were not ok"),
    ],
)
def test_who_drops_the_slow_requests_gains_nothing(make_run, values, outcome, words):
    side = read_side(make_run("base", {"e": FIVE}))
    metric = "ttft_s.p95"
    dropping = altered(side, ok_share=0.98, with_failures={metric: values})
    found = decided(dropping, side, metric)
    assert found.outcome == outcome
    assert words in reason(found)
    assert decided(altered(side, ok_share=0.99), side, metric).outcome == "pass"
    assert decided(dropping, side, "output_throughput_tok_s").outcome == "pass"


def test_a_baseline_that_is_not_sound_decides_nothing(make_run):
    side = altered(read_side(make_run("base", {"e": FIVE})), suspect=0)
    found = decided(side, altered(side, ok_share=0.98))
    assert (found.exit_code, "of the baseline only 98.0%" in reason(found)) == (3, True)
    suspect = altered(side, suspect=1)
    assert decided(side, suspect).exit_code == 0
    found = decided(side, suspect, strict=True)
    assert (found.exit_code, "SUSPECT rounds of the baseline: 1" in reason(found)) == (3, True)


def test_a_suspect_run_decides_nothing_under_strict(make_run):
    base, run = make_run("base", {"e": FIVE}), make_run("run", {"e": [*FIVE, None]})
    found = checked(run, base, strict=True)
    assert found.exit_code == 3
    assert "SUSPECT rounds: 1;" in found.findings[0].decision.reason
    assert any("SUSPECT rounds of this run: 1 of 6" in note for note in found.notes)


def test_what_else_differs_is_noted(make_run):
    base = make_run("base", {"e": FIVE}, info={"max_num_seqs": 4}, threads=1)
    run = make_run("run", {"e": FIVE}, info={"max_num_seqs": 8}, threads=2)
    notes = " ".join(checked(run, base).notes)
    assert "settings differ: max_num_seqs (4 and 8)" in notes
    assert "also differ in threads (1 and 2)" in notes


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"kept_up": True}, "it kept up with the arrivals"),
        ({"offered": 20, "ok": 19}, "19 of 20 requests were ok"),
        ({"unfinished": 2}, "2 unfinished rounds left out"),
    ],
)
def test_what_a_reader_must_know_of_a_case_is_noted(make_run, changed, words):
    base = make_run("base", {"e": FIVE})
    side, options = read_side(base), CheckOptions(metrics=("ttft_s.p95",), limits=Limits(0.05))
    plain = check(side, read_baseline(base), options)
    assert plain.notes == ()
    cases = (replace(side.source.cases[0], **changed),)
    told = check(
        replace(side, source=replace(side.source, cases=cases)), read_baseline(base), options
    )
    assert told.notes[0].startswith(f"e at all-at-once: {words}")


def test_engines_elsewhere_are_said_to_be_on_a_machine_that_nobody_knows(make_run):
    base = make_run("base", {"e": FIVE}, model_info=None)
    found = checked(base, base)
    assert found.exit_code == 0
    assert found.notes[-1].startswith("the engines do not tell on what machine they run")


def test_a_run_without_one_whole_round_is_inconclusive(make_run):
    base = make_run("base", {"e": FIVE})
    run = make_run("run", {"e": FIVE}, trailer=None)
    found = checked(run, base)
    assert found.exit_code == 3
    assert "no round came to its end" in found.findings[0].decision.reason
