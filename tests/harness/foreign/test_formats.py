"""Other tools' files: which tool, which unit, what is unknown; no traceback whatever they hold."""

from __future__ import annotations

import copy
import json
import random
from pathlib import Path

import pytest

from engines.api import CbbenchError
from harness.compare.across import compare_runs
from harness.compare.case import Case, Source
from harness.compare.inputs import read_source, read_sources
from harness.compare.metrics import ALL_NAMES
from harness.foreign.formats import read_foreign

DATA = Path(__file__).parent / "data"
FILES = ["vllm.json", "guidellm.json", "aiperf.json", "locust.json", "locust_stats.csv"]


def read(value: object) -> Source:
    return read_foreign(value if isinstance(value, str) else json.dumps(value), "file", "name")


def values(source: Source, case: int = 0) -> dict[str, float | None]:
    return {name: only for name, (only,) in source.cases[case].values.items()}


def test_vllms_milliseconds_and_lists_of_seconds(content):
    source = read(content("vllm.json"))
    (case,) = source.cases
    assert (source.tool, source.workload_hash) == ("vllm bench serve", None)
    assert (case.load, case.request_rate, case.max_concurrency) == ("2 req/s", 2.0, 8)
    assert (case.offered, case.ok) == (4, 4)
    assert values(source) == pytest.approx(
        {
            "request_throughput_req_s": 1.0,
            "output_throughput_tok_s": 20.0,
            "total_throughput_tok_s": 30.0,
            "ttft_from_send_s.mean": 0.12,
            "ttft_from_send_s.p50": 0.11,
            "ttft_from_send_s.p99": 0.19,
            "tpot_s.mean": 0.05,
            "tpot_s.p50": 0.049,
            "tpot_s.p99": 0.06,
            "itl_s.mean": 0.051,
            "itl_s.p50": 0.048,
            "itl_s.p99": 0.07,
            "e2e_s.mean": 2.5,
            "e2e_s.p50": 2.5,
            "e2e_s.p95": 3.85,
            "e2e_s.p99": 3.97,
            "e2e_s.max": 4.0,
        }
    )


def test_vllms_zeros_without_a_sample_are_unknown(content):  # C6, E1, E2
    value = content("vllm.json")
    value |= {"mean_tpot_ms": 0.0, "median_tpot_ms": 0, "p99_tpot_ms": 0.0}
    assert not any(name.startswith("tpot_s") for name in values(read(value)))
    value |= {"completed": 0, "failed": 4, "output_throughput": 0.0}
    found = values(read(value))
    assert found["output_throughput_tok_s"] == 0
    assert not any(name.endswith(("mean", "p50", "p99", "max")) for name in found)


def test_vllms_lists_are_not_used_where_a_request_failed(content):
    value = content("vllm.json") | {"completed": 3, "failed": 1, "latencies": [1.0, 0.0, 2.0]}
    assert "e2e_s.p95" not in values(read(value))
    assert read(value).cases[0].ok == 3


@pytest.mark.parametrize("rate", ["inf", float("inf")])
def test_a_rate_of_everything_at_once_is_inf(content, rate):  # G6
    assert read(content("vllm.json") | {"request_rate": rate}).cases[0].load == "inf"


def test_guidellms_units_and_a_case_a_benchmark(content):
    source = read(content("guidellm.json"))
    assert [case.load for case in source.cases] == ["constant 2 req/s", "throughput"]
    first, second = source.cases
    assert (first.offered, first.ok, second.offered, second.ok) == (5, 3, 2, 0)
    assert first.notes == ("1 of 5 requests that it made are in none of its counts",)
    found = values(source)
    assert found["output_throughput_tok_s"] == 15.0
    assert found["ttft_from_send_s.p95"] == pytest.approx(0.18)
    assert found["tpot_s.mean"] == pytest.approx(0.05)
    assert (found["e2e_s.p50"], found["e2e_s.max"], found["lag_s.p95"]) == (2.5, 4.1, 0.1)
    assert not any(name.startswith("itl_s") for name in found)
    assert values(source, 1) == {"request_throughput_req_s": 0.0}


def test_guidellms_latency_from_sending_is_said_where_there_is_no_other(content):
    value = content("guidellm.json")
    assert "from sending" not in read(value).cases[0].definitions["e2e_s"]
    del value["benchmarks"][0]["metrics"]["request_scheduled_latency"]
    assert values(read(value))["e2e_s.p50"] == 2.4
    assert "from sending" in read(value).cases[0].definitions["e2e_s"]


def test_aiperfs_units_are_its_own_word(content):
    source = read(content("aiperf.json"))
    found = values(source)
    assert found["ttft_from_send_s.p95"] == pytest.approx(0.18)
    assert found["tpot_s.p99"] == pytest.approx(0.07)
    assert found["lag_s.p50"] == pytest.approx(0.1)
    assert found["e2e_s.p50"] == pytest.approx(2.5)
    assert found["total_throughput_tok_s"] == 30.0
    (case,) = source.cases
    assert (case.load, case.offered, case.ok) == ("constant 2 req/s", 5, 4)
    assert not any(name.startswith("itl_s") for name in found)
    assert case.notes == (
        "inter_chunk_latency is in 'fortnights', a unit that is not known, and left out",
        "it was cancelled before its end",
    )


def test_aiperfs_latency_from_sending_is_said_where_there_is_no_other(content):
    value = content("aiperf.json")
    del value["effective_latency"]
    assert values(read(value))["e2e_s.p50"] == pytest.approx(2.4)
    assert "from sending" in read(value).cases[0].definitions["e2e_s"]


def test_locusts_response_times_are_neither_ttft_nor_e2e(content):  # B5, F4
    source = read(content("locust.json"))
    (case,) = source.cases
    assert (case.engine, case.offered, case.ok) == ("POST /v1/completions", 40, 36)
    assert values(source) == pytest.approx(
        {
            "response_s.mean": 1.0,
            "response_s.p50": 0.47,
            "response_s.p95": 1.0,
            "response_s.p99": 6.732,
            "response_s.max": 6.732,
        }
    )
    assert "gives no rate" in case.notes[0]
    assert "rounds" in case.definitions["response_s"]


def test_locusts_table_has_cbbenchs_kinds_and_a_rate():
    source = read((DATA / "locust_stats.csv").read_text())
    assert [case.engine for case in source.cases] == ["/v1/completions", "GET /health"]
    found = values(source)
    assert found["request_throughput_req_s"] == 4.0
    assert (found["e2e_s.p95"], found["ttft_s.p95"]) == pytest.approx((1.9, 0.18))
    assert (source.cases[0].offered, source.cases[0].ok) == (40, 36)
    assert "response_s.p50" not in values(source, 1)  # N/A
    assert values(source, 1)["response_s.mean"] == pytest.approx(0.003)


def test_no_quantile_of_a_table_is_beyond_its_maximum():
    """locust rounds 1 960 ms to 2 000 in its quantiles, and not in its maximum."""
    text = (DATA / "locust_stats.csv").read_text()
    assert "400.0,2001.0" in text
    found = values(read(text.replace("400.0,2001.0", "400.0,1960.0")))
    assert found["e2e_s.p99"] == found["e2e_s.max"] == pytest.approx(1.96)


def test_a_table_with_nothing_but_the_sum_is_taken():
    lines = (DATA / "locust_stats.csv").read_text().splitlines()
    source = read("\n".join((lines[0], lines[-1])))
    assert source.cases[0].engine == "Aggregated"


@pytest.mark.parametrize("name", FILES)
def test_every_metric_is_a_known_one_and_every_file_is_one_round(name):
    source = read((DATA / name).read_text())
    for case in source.cases:
        assert set(case.values) <= set(ALL_NAMES)
        assert case.rounds == (1,)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "not JSON"),
        ("[", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("[]", "no known tool"),
        ("{}", "no known tool"),
        ('{"metadata": 3}', "no known tool"),
        ("Timestamp,User Count,Type\n1,2,3\n", "not JSON"),
        ("Type,Name,Request Count,Failure Count\nGET,/x,many,0\n", "Request Count"),
        ("Type,Name,Request Count,Failure Count\nGET\n", "Name"),
    ],
)
def test_what_no_tool_wrote_is_refused_in_a_sentence(text, words):
    with pytest.raises(CbbenchError, match=words) as error:
        read(text)
    assert "\n" not in str(error.value)


def assert_read_or_refused(value: object) -> None:
    """Known numbers that can be, or one sentence."""
    refused = ""
    cases: tuple[Case, ...] = ()
    try:
        cases = read(value).cases
    except CbbenchError as error:
        refused = str(error)
    assert "\n" not in refused
    kept = [v for case in cases for found in case.values.values() for v in found]
    assert all(v is None or 0 <= v < float("inf") for v in kept)


def leaves(value: object, path: tuple[object, ...] = ()) -> list[tuple[object, ...]]:
    items = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    return [path, *(leaf for key, item in items for leaf in leaves(item, (*path, key)))]


@pytest.mark.parametrize("name", [name for name in FILES if name.endswith(".json")])
def test_a_file_damaged_anywhere_is_read_or_refused_and_never_breaks(content, name):
    whole = content(name)
    rng = random.Random(name)
    damages = (None, "x", [], {}, -1, True, float("nan"), float("inf"), 10**400, {"unit": 3})
    for path in leaves(whole)[1:]:
        for damage in rng.sample(damages, 4):
            broken = copy.deepcopy(whole)
            inner = broken
            for key in path[:-1]:
                inner = inner[key]
            inner[path[-1]] = damage
            assert_read_or_refused(broken)


def test_a_table_damaged_anywhere_is_read_or_refused_and_never_breaks():
    text = (DATA / "locust_stats.csv").read_text()
    rng = random.Random(3)
    for _ in range(500):
        place = rng.randrange(len(text))
        broken = (
            text[:place] + rng.choice(('"', ",", "\n", "x", "-", "", "\x00")) + text[place + 1 :]
        )
        assert_read_or_refused(broken)


def test_a_cbbench_run_is_compared_with_a_foreign_file_once_both_are_narrowed(make_run):
    loads = [{"name": "poisson-2", "request_rate": 2.0, "max_concurrency": None}]
    runs = {"static": [10.0], "continuous": [15.0]}
    folder = make_run("run", runs, load="poisson-2", loads=loads)
    sources = read_sources([DATA / "guidellm.json", folder])
    with pytest.raises(CbbenchError, match="--unpaired"):
        compare_runs(sources)
    with pytest.raises(CbbenchError, match="choose with --engine and --load"):
        compare_runs(sources, unpaired=True)
    found = compare_runs(sources, unpaired=True, engine="continuous", load="constant 2 req/s")
    (matched,) = found.matched
    (ratio,) = (r for r in matched.ratios if r.metric == "output_throughput_tok_s")
    assert ratio.ratio == pytest.approx(1.0)
    assert not matched.same_requests
    assert ratio.definitions[0].startswith("guidellm divides by")


def test_loads_of_other_known_rates_are_not_compared_and_unknown_ones_are(make_run):
    at_once = read_sources([make_run("run", {"static": [10.0]})])
    with pytest.raises(CbbenchError, match=r"its rate is 2 req/s in .* and inf in"):
        compare_runs(read_sources([DATA / "vllm.json"]) + at_once, unpaired=True)
    unknown = read_sources([DATA / "locust.json"])
    chosen = unknown[0].cases[0].engine
    assert compare_runs(unknown + at_once, unpaired=True, engine=chosen).matched


REAL = {
    "vllm-bench-serve-0.32.0_rate10_n20.json": 20,
    "vllm-bench-serve-0.32.0_rate10_n20_detailed.json": 20,
    "guidellm-0.8.1_constant10_n20.json": 19,
    "aiperf-0.13.0_constant10_n20_profile_export_aiperf.json": 20,
}


@pytest.mark.parametrize(("name", "ok"), REAL.items())
def test_real_files_tell_what_the_server_did(peer_results, name, ok):
    source = read_source(peer_results / name, name)
    found = values(source)
    assert found["e2e_s.p50"] == pytest.approx(0.990, rel=0.01)
    assert found["tpot_s.p50"] == pytest.approx(0.010, rel=0.01)
    assert found["ttft_from_send_s.p50"] < 0.003
    assert found["output_throughput_tok_s"] == pytest.approx(
        100 * found["request_throughput_req_s"]
    )
    assert (source.cases[0].ok, source.cases[0].offered) == (ok, 20)
    assert "10 req/s" in source.cases[0].load


@pytest.mark.parametrize("name", ["locust-2.47.0_u20.json", "locust-2.47.0_u20_stats.csv"])
def test_real_locust_files_tell_times_to_the_headers(peer_results, name):
    source = read_source(peer_results / name, name)
    assert source.cases[0].engine == "POST /v1/completions"
    assert values(source)["response_s.p50"] == pytest.approx(0.003)
    assert values(source)["response_s.mean"] == pytest.approx(0.00365, abs=1e-5)


def test_other_real_files_of_the_tools_are_refused_in_a_sentence(peer_results):
    read_ones = {*REAL, "locust-2.47.0_u20.json", "locust-2.47.0_u20_stats.csv"}
    others = [path for path in peer_results.iterdir() if path.name not in read_ones]
    assert others
    for path in others:
        with pytest.raises(CbbenchError, match=r"expected the folder or run\.json"):
            read_source(path, path.name)
