"""Very small checkpoints with random weights, written once a session, for tests of models."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

TINY_VOCAB = 128
TINY_CONTEXT = 96


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> Iterator[None]:
    """The machine is shared; tests that have loaded torch compute on one thread."""
    torch = sys.modules.get("torch")
    if torch is None:
        yield
        return
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """`checkpoint(family)` is a folder with a model of 2 layers, 32 wide, and a tokenizer.

    Families: llama, qwen3, mistral (sliding window 8), gpt2. Vocabulary 128, context 96; greedy
    output varies. Built at the first call of a family.
    """
    made: dict[str, Path] = {}

    def make(family: str) -> Path:
        if family not in made:
            made[family] = _save(family, tmp_path_factory.mktemp(family))
        return made[family]

    return make


def _save(family: str, folder: Path) -> Path:
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_config(_config(family), dtype=torch.float32)
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.ndim > 1:
                # Small embeddings, or the last token outweighs the layers and is repeated.
                small = "embed" in name or "wte" in name
                parameter.normal_(0.0, 0.05 if small else 0.5, generator=generator)
    model.save_pretrained(folder)
    _tokenizer().save_pretrained(folder)
    return folder


def _config(family: str):
    from transformers import GPT2Config, LlamaConfig, MistralConfig, Qwen3Config

    special = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    if family == "gpt2":
        return GPT2Config(
            vocab_size=TINY_VOCAB,
            n_positions=TINY_CONTEXT,
            n_embd=32,
            n_layer=2,
            n_head=4,
            **special,
        )
    shape = {
        "vocab_size": TINY_VOCAB,
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "max_position_embeddings": TINY_CONTEXT,
    }
    if family == "llama":
        return LlamaConfig(**shape, **special)
    if family == "qwen3":
        return Qwen3Config(**shape, **special)
    assert family == "mistral", f"no such family: {family}"
    return MistralConfig(sliding_window=8, **shape, **special)


def _tokenizer():
    """Words w3 ... w127; ids 0, 1 and 2 are the special tokens."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = ["<pad>", "<s>", "</s>", *(f"w{i}" for i in range(3, TINY_VOCAB))]
    vocabulary = {word: i for i, word in enumerate(words)}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="w3"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", bos_token="<s>", eos_token="</s>"
    )
