"""The tiny tokenizer holds any text, and prompts are encoded as the model's own files say."""

from __future__ import annotations

from pathlib import Path

import pytest

from engines.api import CbbenchError
from engines.models.text import encode_prompts, load_tokenizer
from engines.models.tiny_tokenizer import SPECIAL_TOKENS, build_tiny_tokenizer


def test_tiny_has_text_for_every_id():
    tokenizer = build_tiny_tokenizer()
    assert len(tokenizer) == 4096
    assert all(tokenizer.decode([i]) for i in range(4096))
    assert tokenizer.convert_tokens_to_ids(list(SPECIAL_TOKENS)) == list(range(8))


@pytest.mark.parametrize("text", ["The quick fox", "čaj 🔥\n\t x", "a", " ", "<|eos|>", "\u0000é"])
def test_any_text_comes_back(text: str):
    tokenizer = build_tiny_tokenizer()
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_bytes_of_one_character_are_several_tokens():
    assert len(build_tiny_tokenizer().encode("🔥")) == 4
    assert len(build_tiny_tokenizer().encode("č")) == 2


def test_a_short_text_has_at_least_one_token_and_none_is_added():
    assert encode_prompts("tiny", ["a", "hello"], chat=False) == [
        [build_tiny_tokenizer().convert_tokens_to_ids("a")],
        build_tiny_tokenizer().encode("hello"),
    ]


def test_chat_puts_the_text_into_the_template():
    (ids,) = encode_prompts("tiny", ["hello"], chat=True)
    text = build_tiny_tokenizer().decode(ids)
    assert text == "<|user|>hello<|end|><|assistant|>"


def test_a_folder_uses_its_own_tokenizer(checkpoint):
    assert encode_prompts(str(checkpoint("llama")), ["w5 w9"], chat=False) == [[5, 9]]


def test_chat_without_a_template_is_refused(checkpoint):
    with pytest.raises(CbbenchError, match="no chat template"):
        encode_prompts(str(checkpoint("llama")), ["w5"], chat=True)


def test_a_folder_without_a_tokenizer_is_named(checkpoint, tmp_path: Path):
    for name in ("config.json", "model.safetensors"):
        (tmp_path / name).symlink_to(checkpoint("llama") / name)
    with pytest.raises(CbbenchError, match="no usable tokenizer"):
        load_tokenizer(str(tmp_path))
