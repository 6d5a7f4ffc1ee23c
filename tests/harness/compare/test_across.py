"""Which finished runs are compared, which are refused, and what stands beside a ratio."""

from __future__ import annotations

import dataclasses
import json
import math

import pytest

from engines.api import CbbenchError
from harness.compare.across import compare_runs
from harness.compare.encoding import compared_to_json
from harness.compare.inputs import read_own, read_source, read_sources, short_names
from harness.compare.ours import source_of
from harness.show.runs import runs_text
from harness.statistics import LEAST_ROUNDS

FIVE = [10.0, 10.4, 9.8, 10.1, 10.3]
SLOWER = [value * 0.8 for value in FIVE]


def ratio(compared, metric="output_throughput_tok_s", number=0):
    return next(r for r in compared.matched[number].ratios if r.metric == metric)


def compared(*folders, **options):
    return compare_runs(read_sources(folders), **options)


def test_the_first_is_the_reference_of_all_others(make_run):
    a, b, c = (make_run(n, {"e": v}) for n, v in (("a", FIVE), ("b", SLOWER), ("c", FIVE)))
    found = compared(a, b, c)
    sources = [(m.baseline_source, m.engine_source) for m in found.matched]
    assert sources == [("a", "b"), ("a", "c")]
    assert ratio(found).ratio == pytest.approx(0.8)
    assert ratio(found).answer == "worse"
    assert ratio(found, "ttft_s.p50").ratio == pytest.approx(1.25)
    assert ratio(found, "ttft_s.p50").answer == "worse"
    assert ratio(found, number=1).answer == "not separable"


def test_rounds_of_two_runs_are_not_paired(make_run):
    rising = [10.0, 11.0, 12.0, 13.0, 14.0]
    a, b = make_run("a", {"e": rising}), make_run("b", {"e": [v * 1.01 for v in rising]})
    assert ratio(compared(a, b)).answer == "not separable"


def test_a_run_json_alone_is_as_good_as_its_folder(make_run):
    a, b = make_run("a", {"e": FIVE}), make_run("b", {"e": SLOWER})
    assert compared(a, b / "run.json") == compared(a, b)


def test_a_run_that_lost_its_run_json_is_compared_by_its_rows(make_run):
    a, b = make_run("a", {"e": FIVE}), make_run("b", {"e": SLOWER})
    whole = compared(a, b)
    (b / "run.json").unlink()
    assert compared(a, b) == whole


def test_a_load_that_nothing_tells_of_is_not_taken_for_the_same(make_run):
    a, b = make_run("a", {"e": FIVE}), make_run("b", {"e": FIVE}, loads=[])
    with pytest.raises(CbbenchError, match="its rate is inf in a and unknown in b"):
        compared(a, b)


def test_other_requests_are_refused_whatever_is_asked(make_run):
    other = {"name": "chat", "hash": "def456"}
    a, b = make_run("a", {"e": FIVE}), make_run("b", {"e": FIVE}, workload=other)
    for unpaired in (False, True):
        with pytest.raises(CbbenchError, match=r"a and b had other requests \(chat, hash abc123 "):
            compared(a, b, unpaired=unpaired)


def test_a_result_without_a_hash_needs_a_word_and_is_marked(make_run):
    a, b = make_run("a", {"e": FIVE}), make_run("b", {"e": FIVE}, workload=None)
    with pytest.raises(CbbenchError, match=r"b \(cbbench\) has no workload hash.*--unpaired"):
        compared(a, b)
    assert not compared(a, b, unpaired=True).matched[0].same_requests
    assert compared(a, a).matched[0].same_requests


def test_loads_of_other_rates_are_left_out_and_said(make_run):
    loads = [{"name": "all-at-once", "request_rate": 3.0, "max_concurrency": None}]
    a, b = make_run("a", {"e": FIVE}), make_run("b", {"e": FIVE}, loads=loads)
    with pytest.raises(
        CbbenchError, match=r"its rate is inf in a and 3 req/s in b.*--request-rate"
    ):
        compared(a, b)
    loads[0] |= {"request_rate": "inf", "max_concurrency": 4}
    c = make_run("c", {"e": FIVE}, loads=loads)
    with pytest.raises(CbbenchError, match="its concurrency is None in a and 4 in c"):
        compared(a, c)


def test_engines_are_matched_by_label_and_the_rest_is_said(make_run):
    a = make_run("a", {"x": FIVE, "y": FIVE})
    b = make_run("b", {"y": FIVE, "z": FIVE})
    found = compared(a, b)
    assert [(m.baseline.engine, m.engine.engine) for m in found.matched] == [("y", "y")]
    assert found.left_out == ("x at all-at-once: only in a", "z at all-at-once: only in b")


def test_two_runs_of_one_engine_each_are_compared_whatever_their_labels(make_run):
    found = compared(make_run("a", {"x": FIVE}), make_run("b", {"y": SLOWER}))
    assert ratio(found).answer == "worse"
    assert found.left_out == ()


def test_nothing_in_common_is_refused_with_both_sides_named(make_run):
    a, b = make_run("a", {"x": FIVE, "y": FIVE}), make_run("b", {"z": FIVE})
    with pytest.raises(CbbenchError, match=r"no engine and load in common.*x at.*only in a"):
        compared(a, b)


def test_an_engine_can_be_chosen_of_results_that_have_several(make_run):
    a, b = make_run("a", {"x": FIVE, "y": SLOWER}), make_run("b", {"z": FIVE})
    assert ratio(compared(a, b, engine="y")).ratio == pytest.approx(1.25)
    with pytest.raises(CbbenchError, match="a has no engine 'q'; expected one of x, y"):
        compared(a, b, engine="q")


def test_one_result_is_too_few(make_run):
    with pytest.raises(CbbenchError, match="got 1 result"):
        compared(make_run("a", {"e": FIVE}))


def test_what_else_differs_is_told_with_both_values(make_run):
    a = make_run("a", {"e": FIVE}, info={"max_num_seqs": 4})
    b = make_run(
        "b", {"e": FIVE}, info={"max_num_seqs": 8}, environment={"cpu": "Other", "cores_usable": 2}
    )
    assert compared(a, b).matched[0].also_different == (
        "cpu (Test CPU and Other)",
        "max_num_seqs (4 and 8)",
    )


def test_settings_that_are_not_known_are_no_facts(make_run):
    run = read_own(make_run("a", {"e": FIVE}, info={"max_num_seqs": None, "rows": 4}))
    facts = source_of(run, "a").cases[0].facts
    assert facts["rows"] == "4"
    assert "max_num_seqs" not in facts


def test_few_rounds_have_a_ratio_and_no_answer(make_run):
    a, b = make_run("a", {"e": FIVE[:2]}), make_run("b", {"e": SLOWER[:2]})
    found = ratio(compared(a, b))
    assert LEAST_ROUNDS == 5
    assert (found.ratio, found.answer) == (pytest.approx(0.8), None)
    assert found.note == "2 rounds, no interval"


def test_a_run_in_which_nothing_was_ok_has_no_ratio(make_run):  # E2
    a, b = make_run("a", {"e": FIVE}), make_run("b", {"e": [None] * 5})
    found = compared(a, b)
    assert (ratio(found).ratio, ratio(found).note) == (None, "a round measured 0")
    ttft = ratio(found, "ttft_s.p50")
    assert ttft.engine_value is None
    assert ttft.note.startswith("no value of engine")


def test_what_neither_side_knows_is_not_compared(make_run):
    names = [
        r.metric
        for r in compared(make_run("a", {"e": FIVE}), make_run("b", {"e": FIVE})).matched[0].ratios
    ]
    assert "goodput_req_s" not in names
    assert "lag_s.p99" not in names


def test_goodput_of_other_bounds_is_not_compared(make_run):
    a = make_run("a", {"e": FIVE}, goodput="ttft:500")
    b = make_run("b", {"e": FIVE}, goodput="ttft:900")
    assert "attainment" in [r.metric for r in compared(a, a).matched[0].ratios]
    assert "attainment" not in [r.metric for r in compared(a, b).matched[0].ratios]


@pytest.mark.parametrize(
    "damage",
    [
        {"loads": 3},
        {"loads": [3]},
        {"loads": None},
        {"model_info": "tiny"},
        {"workload": []},
    ],
    ids=str,
)
def test_settings_of_an_unexpected_shape_are_unknown_and_break_nothing(make_run, damage):
    run = read_own(make_run("a", {"e": FIVE}))
    broken = dataclasses.replace(run, settings={**run.settings, **damage})
    assert source_of(broken, "a").cases[0].engine == "e"


def test_values_that_are_no_numbers_are_unknown(make_run):  # F1
    run = read_own(make_run("a", {"e": FIVE}))
    results = list(run.results)
    for number, value in enumerate((math.nan, math.inf)):
        results[number] = dataclasses.replace(results[number], output_throughput_tok_s=value)
    source = source_of(dataclasses.replace(run, results=tuple(results)), "a")
    values = source.cases[0].values["output_throughput_tok_s"]
    assert values[:2] == (None, None)
    assert None not in values[2:]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "not JSON"),
        (b"\xff\xfe", "not UTF-8"),
        (b"[1, 2]", "no known tool"),
        (b'{"schema_version": 99}', "schema_version 99"),
    ],
)
def test_files_that_are_no_results_are_refused_in_a_sentence(tmp_path, content, words):
    path = tmp_path / "file.json"
    path.write_bytes(content)
    with pytest.raises(CbbenchError, match=words):
        read_source(path, "a")


def test_a_path_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(CbbenchError, match="No such file"):
        read_source(tmp_path / "nowhere", "a")


def test_names_are_last_parts_and_told_apart(tmp_path):
    paths = [tmp_path / "x" / "run", tmp_path / "y" / "run" / "run.json", tmp_path / "z"]
    assert short_names(paths) == ["run", "run (2)", "z"]


def test_values_stay_as_they_are(make_run):
    source = read_source(make_run("a", {"e": FIVE}), "a")
    with pytest.raises(dataclasses.FrozenInstanceError):
        source.name = "b"


def test_quantiles_over_all_requests_stand_beside_those_of_the_ok_ones(make_run):
    a, b = make_run("a", {"e": FIVE[:3]}), make_run("b", {"e": [10.0, None, None]})
    found = compared(a, b)
    (case,) = found.sources[1].cases
    ttft = case.values["ttft_s.p95"][0]
    assert case.with_failures["ttft_s.p95"] == (ttft, math.inf, math.inf)
    assert case.with_failures["ttft_s.max"] == (ttft, math.inf, math.inf)
    assert found.sources[0].cases[0].with_failures == {}
    assert "With those that were not ok as infinite: TTFT p50 inf ms" in runs_text(found)
    told = json.loads(compared_to_json(found))["sources"][1]["cases"][0]["with_failures"]
    assert told["ttft_s.p95"] == [pytest.approx(ttft), "inf", "inf"]
