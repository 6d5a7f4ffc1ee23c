"""An exported checkpoint is the model that it came from."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from engines.api import CbbenchError
from engines.models.export import export_model
from engines.models.load import load_model
from engines.models.text import encode_prompts
from engines.registry import BuildContext


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_exported_tiny_gives_the_same_logits_and_tokens(tmp_path: Path, dtype: str):
    folder = tmp_path / "new" / "tiny"
    export_model("tiny", folder, dtype)
    context = BuildContext(device="cpu", dtype=dtype)
    built = load_model(context, "sdpa")
    read = load_model(BuildContext(model=str(folder), device="cpu", dtype=dtype), "sdpa")
    ids = torch.arange(300, 330)[None]
    assert torch.equal(built.model(ids).logits, read.model(ids).logits)
    assert read.info.special_token_ids == built.info.special_token_ids
    assert read.info.eos_token_ids == built.info.eos_token_ids
    texts = ["hello there", "🔥"]
    for chat in (False, True):
        assert encode_prompts(str(folder), texts, chat=chat) == encode_prompts(
            "tiny", texts, chat=chat
        )


def test_a_folder_with_files_is_left_alone(tmp_path: Path):
    (tmp_path / "kept.txt").write_text("x")
    with pytest.raises(CbbenchError, match="new or an empty folder"):
        export_model("tiny", tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["kept.txt"]
