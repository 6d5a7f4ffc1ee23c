"""What loads is described rightly; what does not load is told in one sentence."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path

import pytest
import torch

from engines.api import CbbenchError
from engines.models.hardware import has_bf16_units, resolve_device, resolve_dtype
from engines.models.load import load_model
from engines.registry import BuildContext


def load(model: object = "tiny", **settings: object):
    return load_model(BuildContext(model=str(model), device="cpu", **settings), "sdpa")


def test_tiny_is_the_model_of_the_design():
    info = load(dtype="float32").info
    assert info.num_parameters == 25_698_816
    assert (info.vocab_size, info.max_model_len) == (4096, 4096)
    assert info.kv_bytes_per_token == 2 * 8 * 4 * 64 * 4
    assert info.eos_token_ids == (2,)
    assert info.special_token_ids == tuple(range(8))
    assert (info.dtype, info.device) == ("float32", "cpu")


def test_tiny_has_the_same_weights_each_time_and_rounded_in_bf16():
    first, second, half = load(), load(), load(dtype="bfloat16")
    pairs = zip(first.model.parameters(), second.model.parameters(), strict=True)
    assert all(torch.equal(a, b) for a, b in pairs)
    pairs = zip(first.model.parameters(), half.model.parameters(), strict=True)
    assert all(torch.equal(a.bfloat16(), b) for a, b in pairs)
    assert half.model.model.rotary_emb.inv_freq.dtype == torch.float32


def test_tiny_weights_do_not_change_between_versions():
    """A change here makes old runs incomparable: give the model another name instead."""
    weight = load(dtype="float32").model.model.layers[3].self_attn.k_proj.weight
    assert weight[5, 7].item() == pytest.approx(0.06188880279660225, abs=1e-9)


def test_greedy_output_of_tiny_wanders_and_is_mostly_clear():
    model = load(dtype="float32").model
    ids = torch.arange(100, 116)[None]
    gaps = []
    for _ in range(40):
        best = model(ids, logits_to_keep=1).logits[0, -1].topk(2)
        gaps.append((best.values[0] - best.values[1]).item())
        ids = torch.cat([ids, best.indices[None, :1]], dim=1)
    assert len(set(ids[0, 16:].tolist())) > 30
    assert sum(gap > 0.01 for gap in gaps) > 30


@pytest.mark.parametrize("family", ["llama", "qwen3", "mistral", "gpt2"])
def test_a_folder_loads_by_its_config(checkpoint, family: str):
    folder = checkpoint(family)
    loaded = load(folder, dtype="float32")
    assert loaded.info.name == Path(folder).name
    heads = 4 if family == "gpt2" else 2
    assert loaded.info.kv_bytes_per_token == 2 * 2 * heads * 8 * 4
    assert loaded.info.max_model_len == 96
    assert loaded.info.eos_token_ids == (2,)
    assert loaded.info.special_token_ids == (0, 1, 2)
    assert not loaded.model.training
    assert not any(p.requires_grad for p in loaded.model.parameters())


def test_max_model_len_may_be_lowered_but_not_raised(checkpoint):
    assert load(checkpoint("llama"), max_model_len=50).info.max_model_len == 50
    with pytest.raises(CbbenchError, match=r"--max-model-len 97.*context of 96"):
        load(checkpoint("llama"), max_model_len=97)


def sentence(folder: object) -> str:
    with pytest.raises(CbbenchError) as caught:
        load(folder)
    message = str(caught.value)
    assert "\n" not in message
    assert repr(str(folder)) in message
    return message


@pytest.fixture
def copy(checkpoint, tmp_path: Path) -> Path:
    return Path(shutil.copytree(checkpoint("llama"), tmp_path / "copy"))


def test_a_missing_folder_is_named(tmp_path: Path):
    assert "is not a folder" in sentence(tmp_path / "nothing")


def test_a_folder_without_config_is_named(copy: Path):
    (copy / "config.json").unlink()
    assert "no config.json" in sentence(copy)


def test_an_unreadable_config_is_named(copy: Path):
    (copy / "config.json").write_text("{")
    assert "no usable config" in sentence(copy)


def test_pickled_weights_are_refused(copy: Path):
    (copy / "model.safetensors").rename(copy / "pytorch_model.bin")
    assert "pickled" in sentence(copy)


def test_a_folder_without_weights_is_named(copy: Path):
    (copy / "model.safetensors").unlink()
    assert "no weights" in sentence(copy)


def test_a_cut_off_weight_file_is_named(copy: Path):
    weights = copy / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1000])
    assert "cannot be loaded" in sentence(copy)


def test_a_checkpoint_that_lacks_weights_is_refused_and_not_filled_with_noise(copy: Path):
    config = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps(config | {"num_hidden_layers": 3}))
    assert "lacks 9 weights" in sentence(copy)


def test_a_checkpoint_of_other_shapes_is_refused(copy: Path):
    config = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps(config | {"intermediate_size": 65}))
    assert "cannot be loaded" in sentence(copy)


def test_an_encoder_decoder_is_refused(copy: Path):
    (copy / "config.json").write_text(json.dumps({"model_type": "t5", "vocab_size": 128}))
    assert "expected a decoder" in sentence(copy)


def test_an_unknown_id_fails_at_once_when_offline(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    start_s = time.perf_counter()
    assert "pass the path of a local folder" in sentence("nobody/no-such-model")
    assert time.perf_counter() - start_s < 5


def test_a_name_that_is_no_id_is_refused():
    assert "neither a folder" in sentence("a b c")


def test_float16_on_a_cpu_is_refused():
    with pytest.raises(CbbenchError, match="float16 has no fast path"):
        resolve_dtype("float16", torch.device("cpu"))


def test_unknown_dtype_and_device_are_refused():
    with pytest.raises(CbbenchError, match="did you mean 'float32'"):
        resolve_dtype("float23", torch.device("cpu"))
    with pytest.raises(CbbenchError, match="expected auto, cpu, cuda"):
        resolve_device("gpu")


@pytest.mark.skipif(torch.cuda.is_available(), reason="has a CUDA device")
def test_cuda_without_a_device_is_refused():
    with pytest.raises(CbbenchError, match="sees 0 CUDA devices"):
        resolve_device("cuda")


@pytest.mark.parametrize(
    ("text", "has_units"),
    [
        ("flags\t\t: fpu avx2 avx512f", False),
        ("processor: 0\nflags\t: avx512f avx512_bf16", True),
        ("flags : amx_bf16", True),
        ("Features\t: fp asimd bf16", True),
        ("", False),
    ],
)
def test_bf16_is_read_from_the_cpu_flags(tmp_path: Path, text: str, has_units: bool):
    path = tmp_path / "cpuinfo"
    path.write_text(text)
    assert has_bf16_units(torch.device("cpu"), path) is has_units
    assert not has_bf16_units(torch.device("cpu"), tmp_path / "missing")
