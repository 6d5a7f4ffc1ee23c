"""What a model's files say of its prompts, and what is assumed where they say nothing."""

from __future__ import annotations

import json

import pytest

from engines.models.limits import prompt_limits
from engines.models.load import load_model
from engines.models.tiny_tokenizer import TINY
from engines.registry import BuildContext


def test_the_built_in_models_limits_are_its_own():
    info = load_model(BuildContext(model=TINY, device="cpu"), "sdpa").info
    known = prompt_limits(TINY)
    assert known.prompts.vocab_size == info.vocab_size
    assert known.prompts.special_token_ids == info.special_token_ids
    assert (known.max_model_len, known.note) == (info.max_model_len, "")


def write(folder, config, tokenizer=None):
    (folder / "config.json").write_text(config if isinstance(config, str) else json.dumps(config))
    (folder / "model.safetensors").write_bytes(b"")
    if tokenizer is not None:
        (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    return prompt_limits(str(folder))


def test_a_folders_files_are_read(tmp_path):
    added = [{"id": 0, "special": True}, {"id": 7, "special": False}]
    config = {"vocab_size": 100, "max_position_embeddings": 64, "eos_token_id": 5}
    known = write(tmp_path, config, {"added_tokens": added})
    assert (known.prompts.vocab_size, known.prompts.special_token_ids) == (100, (0, 5))
    assert (known.max_model_len, known.note) == (64, "")


def test_several_ends_are_all_special(tmp_path):
    known = write(tmp_path, {"vocab_size": 100, "eos_token_id": [5, 6, 200], "bos_token_id": None})
    assert known.prompts.special_token_ids == (5, 6)


def test_the_text_part_of_a_config_counts(tmp_path):
    inner = {"vocab_size": 50, "max_position_embeddings": 32}
    known = write(tmp_path, {"vocab_size": 9, "text_config": inner})
    assert (known.prompts.vocab_size, known.max_model_len) == (50, 32)


@pytest.mark.parametrize("config", ["{", "[]", "{}", '{"vocab_size": "many"}'])
def test_what_cannot_be_known_is_assumed_and_said(tmp_path, config):
    known = write(tmp_path, config)
    assert known.prompts.vocab_size == 4096
    assert "nothing is known here" in known.note


def test_a_model_that_is_nowhere_is_assumed():
    assert "nothing is known here" in prompt_limits("/no/such/folder").note
