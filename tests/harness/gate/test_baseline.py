"""The baseline file: written, brought up to date, read back, refused."""

from __future__ import annotations

import json

import pytest

from engines.api import CbbenchError
from harness.gate.baseline import read_baseline, updated_baseline
from harness.gate.machine import Machine, machine_of
from harness.gate.side import read_side
from harness.gate.stored import STORED
from harness.results.digest import digest_of
from harness.results.file import read_run

FIVE = [10.0, 10.4, 9.8, 10.1, 10.3]
SLOWER = [value * 0.8 for value in FIVE]
OTHER = {"cpu": "Other CPU", "cores_usable": 8}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "main.json"


def write(path, folder) -> None:
    path.write_text(updated_baseline(path, read_side(folder)))


def throughput(baseline, machine=0):
    return baseline.sides[machine].source.cases[0].values["output_throughput_tok_s"]


def test_what_was_written_is_read_back(make_run, path):
    folder = make_run("a", {"e": FIVE, "f": SLOWER}, info={"max_num_seqs": 4})
    write(path, folder)
    (side,) = read_baseline(path).sides
    run = read_side(folder)
    assert side.machine == run.machine == Machine("Test CPU", 2, "float32")
    assert side.source.workload_hash == "abc123"
    assert side.source.facts == run.source.facts
    for stored, measured in zip(side.source.cases, run.source.cases, strict=True):
        assert set(stored.values) == set(STORED)
        assert stored.rounds == (1, 2, 3, 4, 5)
        assert stored.facts == measured.facts
        for name in STORED:
            short = [v if v is None else float(f"{v:.6g}") for v in measured.values[name]]
            assert list(stored.values[name]) == short


def test_the_file_is_strict_json_with_a_line_a_metric(make_run, path):  # F1
    write(path, make_run("a", {"e": FIVE}))
    text = path.read_text()
    json.loads(text, parse_constant=pytest.fail)
    lines = [line for line in text.splitlines() if '"output_throughput_tok_s"' in line]
    assert lines == ['      "output_throughput_tok_s": [10.0, 10.4, 9.8, 10.1, 10.3],']
    assert str(path.parent) not in text


def test_a_folder_is_a_baseline_as_it_is(make_run):
    folder = make_run("a", {"e": FIVE})
    assert throughput(read_baseline(folder)) == throughput(read_baseline(folder / "run.json"))
    assert read_baseline(folder).name == "a"


def test_an_update_takes_the_place_of_the_same_kind_of_machine_only(make_run, path):
    write(path, make_run("a", {"e": FIVE}))
    write(path, make_run("b", {"e": SLOWER}, environment=OTHER))
    assert throughput(read_baseline(path), 0)[0] == pytest.approx(10.0)
    assert throughput(read_baseline(path), 1)[0] == pytest.approx(8.0)
    write(path, make_run("c", {"e": [20.0] * 5}))
    assert len(read_baseline(path).sides) == 2
    values = {s.machine.model: s.source.cases[0].values for s in read_baseline(path).sides}
    assert values["Test CPU"]["output_throughput_tok_s"] == pytest.approx((20.0,) * 5)
    assert values["Other CPU"]["output_throughput_tok_s"][0] == pytest.approx(8.0)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"workload": {"name": "chat", "hash": "def456"}}, "of other requests"),
        ({"goodput": "ttft:500"}, "other goodput bounds"),
    ],
)
def test_a_file_of_other_requests_is_not_overwritten(make_run, path, changed, words):
    write(path, make_run("a", {"e": FIVE}))
    before = path.read_text()
    with pytest.raises(CbbenchError, match=words):
        write(path, make_run("b", {"e": FIVE}, **changed))
    assert path.read_text() == before


@pytest.mark.parametrize(
    ("rates", "settings", "words"),
    [
        ([10.0, None, 10.0], {}, "8 of 12 requests ok"),
        ([None], {}, "0 of 4 requests ok"),
        (FIVE, {"workload": None}, "no workload hash"),
        ([], {}, "no result"),
    ],
)
def test_only_a_sound_run_becomes_a_baseline(make_run, path, rates, settings, words):
    (folder := make_run("a", {"e": rates} if rates else {}, **settings))
    with pytest.raises(CbbenchError, match=words):
        write(path, folder)
    assert not path.exists()


def test_a_run_with_rounds_that_did_not_end_is_no_baseline(make_run, path):
    with pytest.raises(CbbenchError, match="5 unfinished rounds"):
        write(path, make_run("a", {"e": FIVE}, trailer=None))


def test_values_that_are_not_one_a_round_are_refused_even_when_sealed(make_run, path):
    def shorten(content):
        part = content["machines"][0]
        part["cases"][0]["values"]["ttft_s.p95"].pop()
        part["digest"] = digest_of(part)

    write(path, make_run("a", {"e": FIVE}))
    edited(path, shorten)
    with pytest.raises(CbbenchError, match=r"ttft_s\.p95 of e has 4 values"):
        read_baseline(path)


def edited(path, edit):
    content = json.loads(path.read_text())
    edit(content)
    path.write_text(json.dumps(content))


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (lambda c: c["machines"][0]["cases"][0]["values"].update({"ttft_s.p95": [9] * 5}), "chan"),
        (lambda c: c["machines"][0].pop("digest"), "digest"),
        (lambda c: c["machines"][0]["cases"][0].pop("rounds"), "rounds"),
        (lambda c: c["machines"][0]["machine"].pop("model"), "model"),
        (lambda c: c.update(machines=3), "machines"),
        (lambda c: c.update(workload_hash=None), "workload_hash"),
        (lambda c: c.update(baseline_version=2), "its baseline_version is 2"),
    ],
)
def test_a_file_changed_by_hand_is_refused_in_a_sentence(make_run, path, edit, words):
    write(path, make_run("a", {"e": FIVE}))
    edited(path, edit)
    with pytest.raises(CbbenchError, match=rf"cannot use the baseline .*{words}.*baseline update"):
        read_baseline(path)


def test_a_part_may_be_taken_out_by_hand(make_run, path):
    write(path, make_run("a", {"e": FIVE}))
    write(path, make_run("b", {"e": SLOWER}, environment=OTHER))
    edited(path, lambda c: c["machines"].pop(0))
    assert read_baseline(path).sides[0].machine.model == "Other CPU"


@pytest.mark.parametrize("text", ["", "{", "[1]", "{}", "null", '{"schema_version": 1}'])
def test_what_is_no_baseline_is_refused_in_a_sentence(path, text):
    path.write_text(text)
    with pytest.raises(CbbenchError):
        read_baseline(path)


def test_a_baseline_that_is_not_there_is_refused_with_what_to_do(path):
    with pytest.raises(CbbenchError, match=r"there is no baseline .*cbbench baseline update"):
        read_baseline(path)


@pytest.mark.parametrize(
    ("model_info", "environment", "machine"),
    [
        ({"device": "cpu", "dtype": "bfloat16"}, {"cpu": "C", "cores_usable": 2}, "C, 2 cores, bf"),
        (
            {"device": "cuda:0", "device_name": "G 80GB", "dtype": "bfloat16"},
            {"cpu": "C", "cores_usable": 2},
            "G 80GB, bfloat16",
        ),
        ({"device": "cuda:0", "dtype": "x"}, {"cpu": "C"}, "unknown, x"),
        (None, {"cpu": None, "machine": "aarch64"}, "aarch64, unknown"),
        (None, {}, "unknown, unknown"),
    ],
)
def test_a_machine_is_its_gpu_or_its_cpu(make_run, model_info, environment, machine):
    folder = make_run("a", {"e": FIVE}, environment=environment, model_info=model_info)
    found = machine_of(read_run(folder))
    assert str(found).startswith(machine)
    assert found.same_kind(found) == ("unknown" not in str(found).split(",")[0])
