"""Equal outputs as a gate: whole runs on a very small model, with one token planted wrong."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

Call = Callable[..., Any]
TWIN = 64  # ids so far apart have the same logits
BRIEF = [
    *("--workload", "uniform", "--num-prompts", "5", "--input-len", "9", "--output-len", "6"),
    *("--request-rate", "inf", "--num-warmups", "1", "--repeats", "1", "--out", "o"),
    *("--threads", "1", "--kv-memory", "4MiB", "--check-outputs"),
]


@pytest.fixture(scope="module")
def twins(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Llama of 2 layers, vocabulary 128, in which token t and t + 64 score alike."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=2 * TWIN,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=96,
        tie_word_embeddings=False,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
    )
    model = LlamaForCausalLM(config)
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.ndim > 1:
                parameter.normal_(0.0, 0.05 if "embed" in name else 0.5, generator=generator)
        model.lm_head.weight[TWIN:] = model.lm_head.weight[:TWIN]
    folder = tmp_path_factory.mktemp("twins")
    model.save_pretrained(folder)
    return folder


def run_file(folder: Path) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((folder / "o" / "run.json").read_text())
    return loaded


def reasons(folder: Path, engine: str) -> str:
    (result,) = (r for r in run_file(folder)["results"] if r["engine"] == engine)
    return " ".join(result["verdict"]["reasons"])


def test_a_wrong_token_fails_the_gate_by_request_and_position(
    call: Call, tmp_path: Path, twins: Path
) -> None:
    engines = "sequential,continuous[block_size=3],alters"
    done = call("run", "--engines", engines, "--model", str(twins), "--dtype", "float32", *BRIEF)
    assert done.returncode == 1
    assert "outputs differ: request '00002', answer position 3 (from 0): sequential" in done.stdout
    run = run_file(tmp_path)
    check = run["settings"]["output_check"]
    assert (check["status"], check["num_differences"], check["requests"]) == ("different", 1, 5)
    (difference,) = check["differences"]
    right, wrong = difference["tokens"]
    assert wrong == right + 1
    assert difference["best"] % TWIN == right % TWIN
    assert difference["behind"][0] < 1e-4 < difference["behind"][1]
    assert "its answers are not the model's: request '00002'" in reasons(tmp_path, "alters")
    for honest in ("sequential", "continuous[block_size=3]"):
        assert "answers" not in reasons(tmp_path, honest)
    assert all(result["counts"]["ok"] == 5 for result in run["results"])
    report = (tmp_path / "o" / "report.md").read_text().replace("\\", "")
    assert "## Equal outputs\n\noutputs differ: request '00002', answer position 3" in report
    assert "- wrong token: request '00002'" in report
    (tmp_path / "o" / "run.json").unlink()
    assert "outputs differ: request '00002'" in call("report", "o").stdout


def test_a_token_as_good_as_the_best_is_let_pass(call: Call, tmp_path: Path, twins: Path) -> None:
    engines = f"continuous,alters[shift={TWIN}]"
    done = call("run", "--engines", engines, "--model", str(twins), "--dtype", "float32", *BRIEF)
    assert done.returncode == 0, done.stderr
    assert (
        "outputs are equal up to near-ties (5 requests in 2 cells): 1 request part" in done.stdout
    )
    check = run_file(tmp_path)["settings"]["output_check"]
    assert (check["status"], check["faults"]) == ("near-ties", [])
    assert check["differences"][0]["kind"] == "near-tie"
    assert "answers" not in reasons(tmp_path, f"alters[shift={TWIN}]")


def test_half_precision_reports_and_fails_nothing(
    call: Call, tmp_path: Path, twins: Path
) -> None:  # W1
    engines = "continuous,alters[request=00004,position=0]"
    done = call("run", "--engines", engines, "--model", str(twins), "--dtype", "bfloat16", *BRIEF)
    assert done.returncode == 0, done.stderr
    check = run_file(tmp_path)["settings"]["output_check"]
    assert (check["status"], check["faults"], check["tolerance"]) == ("rounding", [], None)
    assert "answers part, as rounding in bfloat16 makes them (reported, no failure)" in done.stdout
    assert "request '00004', answer position 0" in " ".join(d["told"] for d in check["differences"])
    assert "the largest logit difference at such a place is" in done.stdout


def test_equal_answers_need_no_model(call: Call, tmp_path: Path) -> None:
    done = call("run", "--engines", "a=fake,b=fake", *BRIEF)
    assert done.returncode == 0, done.stderr
    assert "outputs are equal: 5 requests in 2 cells, 30 tokens." in done.stdout
    assert not (tmp_path / "o" / "logs" / "check-outputs.log").exists()
    assert run_file(tmp_path)["settings"]["check_outputs"] is True


def test_one_answer_to_each_request_proves_nothing(call: Call, tmp_path: Path) -> None:
    done = call("run", "--engines", "fake", *BRIEF)
    assert done.returncode == 3
    assert "outputs: no request has two answers to set against each other." in done.stdout


def test_without_the_gate_no_outputs_are_kept(call: Call, tmp_path: Path) -> None:
    done = call("run", "--engines", "a=fake,b=fake", *BRIEF[:-1])
    assert done.returncode == 0, done.stderr
    assert "outputs" not in done.stdout
    assert "output_check" not in run_file(tmp_path)["settings"]
    assert all('"k":' not in path.read_text() for path in (tmp_path / "o" / "raw").iterdir())
