from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from transformers import AutoModelForCausalLM, BloomConfig, LlamaConfig, Qwen2Config  # noqa: E402

from engines.api import CbbenchError  # noqa: E402
from engines.loop.attention.choose import make_backend  # noqa: E402
from engines.loop.attention.interface import ATTENTION_NAME, register_attention  # noqa: E402
from engines.loop.attention.probe import probe  # noqa: E402

CPU = torch.device("cpu")
SHAPE = {
    "vocab_size": 100,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
}


def build(config, attention: str = ATTENTION_NAME, dtype: torch.dtype = torch.float32):
    register_attention()
    torch.manual_seed(3)
    model = AutoModelForCausalLM.from_config(config, attn_implementation=attention, dtype=dtype)
    for parameter in model.parameters():
        if parameter.ndim > 1:
            torch.nn.init.normal_(parameter, std=0.3)
    return model.eval().requires_grad_(False)


def check(model, attention: str = "gathered") -> float:
    return probe(model, "planted", make_backend(attention, CPU))


@pytest.mark.parametrize("attention", ["reference", "gathered", "compiled"])
@pytest.mark.parametrize("family", ["llama", "qwen3", "mistral", "gpt2"])
def test_sound_models_agree_to_rounding(checkpoint, family, attention):
    if attention == "compiled":
        pytest.importorskip("numba")
    register_attention()
    model = AutoModelForCausalLM.from_pretrained(
        checkpoint(family), attn_implementation=ATTENTION_NAME
    ).eval()
    assert check(model, attention) < 5e-6
    assert model.config._attn_implementation == ATTENTION_NAME


def test_bfloat16_is_accepted():
    assert check(build(LlamaConfig(**SHAPE), dtype=torch.bfloat16)) < 0.05


def test_layers_of_both_kinds_are_accepted():
    config = Qwen2Config(**SHAPE, use_sliding_window=True, sliding_window=8, max_window_layers=1)
    assert set(config.layer_types) == {"full_attention", "sliding_attention"}
    assert check(build(config)) < 5e-6


def test_a_model_that_ignores_positions_is_refused():
    model = build(LlamaConfig(**SHAPE))
    inner = model.model.forward
    model.model.forward = lambda *args, position_ids=None, **more: inner(*args, **more)
    with pytest.raises(CbbenchError, match=r"'planted' does not work .* differ by up to \d"):
        check(model)


def test_a_backend_that_is_wrong_is_refused():
    class Swapped:
        name = "swapped"

        def begin(self, packed):
            step = make_backend("reference", CPU).begin(packed)

            class Step:
                def attend(self, call):
                    return step.attend(call).flip(0)

            return Step()

    with pytest.raises(CbbenchError, match="differ by up to"):
        probe(build(LlamaConfig(**SHAPE)), "planted", Swapped())


def test_a_model_that_gives_nan_is_refused():
    model = build(LlamaConfig(**SHAPE))
    model.lm_head.weight[5] = float("nan")
    with pytest.raises(CbbenchError, match="differ by up to nan"):
        check(model)


def test_a_model_that_never_dispatches_is_refused():
    config = BloomConfig(vocab_size=100, hidden_size=32, n_layer=2, n_head=4)
    with pytest.raises(CbbenchError, match="'planted'"):
        check(build(config, attention="eager"))


def test_one_layer_that_does_not_call_is_refused():
    model = build(LlamaConfig(**SHAPE))
    model.model.layers[1].self_attn.forward = lambda hidden_states, **_: (hidden_states, None)
    with pytest.raises(CbbenchError, match="2 layers, of which 1 called"):
        check(model)


@pytest.mark.parametrize("kind", ["dynamic", "longrope"])
def test_rope_that_bends_with_the_neighbours_is_refused(kind):
    config = LlamaConfig(**SHAPE)
    model = build(config)
    model.config.rope_parameters = {"rope_type": kind, "rope_theta": 10_000.0}
    with pytest.raises(CbbenchError, match=f"rope type '{kind}'"):
        check(model)
    model.config.rope_parameters = {"full_attention": {"rope_type": kind}}
    with pytest.raises(CbbenchError, match=f"rope type '{kind}'"):
        check(model)


def test_kinds_of_layers_that_are_not_attended_as_they_say_are_refused():
    model = build(LlamaConfig(**SHAPE))
    for kinds in (["full_attention", "chunked_attention"], ["full_attention", "sliding_attention"]):
        model.config.layer_types = kinds
        with pytest.raises(CbbenchError, match=f"layer 1 of model 'planted' is a {kinds[1]}"):
            check(model)


def test_attention_outside_a_step_is_an_error():
    model = build(LlamaConfig(**SHAPE))
    with pytest.raises(RuntimeError, match="outside a step"):
        model(input_ids=torch.tensor([[1, 2]]))
