"""Writes a model and its tokenizer as a checkpoint folder, for other servers to load."""

from __future__ import annotations

from pathlib import Path

from engines.api import CbbenchError
from engines.models.load import load_model
from engines.models.text import load_tokenizer
from engines.registry import BuildContext


def export_model(name: str, folder: Path, dtype: str = "float32") -> None:
    """Writes config, safetensors and tokenizer; loading the folder gives the same logits.

    Raises `CbbenchError` when `folder` exists and is not empty.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise CbbenchError(f"{str(folder)!r} is there already; give a new or an empty folder")
    loaded = load_model(BuildContext(model=name, device="cpu", dtype=dtype), "sdpa")
    tokenizer = load_tokenizer(name)
    folder.mkdir(parents=True, exist_ok=True)
    loaded.model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
