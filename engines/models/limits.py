"""What prompts may be drawn for a model that is not loaded here, from its files alone.

For engines whose model lies behind a socket. Loads neither torch nor transformers. Where nothing
can be learned it falls back to the ids of the built-in model, which nearly every model has.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from engines.api import CbbenchError, PromptLimits
from engines.models.locate import Checkpoint, locate
from engines.models.tiny_tokenizer import SPECIAL_TOKENS, TINY

_TINY_PROMPTS: Final = PromptLimits(4096, tuple(range(len(SPECIAL_TOKENS))))
_TINY_CONTEXT: Final = 4096


@dataclass(frozen=True, slots=True)
class KnownLimits:
    """`note` is a sentence where something had to be assumed."""

    prompts: PromptLimits
    max_model_len: int
    note: str = ""


def prompt_limits(model: str) -> KnownLimits:
    """Never fails: for a remote server the run's model is but a hint."""
    if model == TINY:
        return KnownLimits(_TINY_PROMPTS, _TINY_CONTEXT)
    try:
        checkpoint = locate(model)
        config = _config(checkpoint)
    except CbbenchError:
        return _assumed(model)
    size, length = config.get("vocab_size"), config.get("max_position_embeddings")
    if not isinstance(size, int) or size < 1:
        return _assumed(model)
    named = [config.get(f"{kind}_token_id") for kind in ("bos", "eos", "pad")]
    flat = [i for ids in named for i in (ids if isinstance(ids, list) else [ids])]
    special = special_ids_on_disk(checkpoint) | {i for i in flat if isinstance(i, int)}
    prompts = PromptLimits(size, tuple(sorted(i for i in special if 0 <= i < size)))
    return KnownLimits(prompts, length if isinstance(length, int) else _TINY_CONTEXT)


def special_ids_on_disk(checkpoint: Checkpoint) -> frozenset[int]:
    """Ids that the tokenizer's file marks as special; none when there is no such file."""
    path = checkpoint.file("tokenizer.json")
    if path is None:
        return frozenset()
    try:
        added = json.loads(Path(path).read_text(encoding="utf-8")).get("added_tokens", [])
        return frozenset(int(token["id"]) for token in added if token.get("special"))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return frozenset()


def _config(checkpoint: Checkpoint) -> Mapping[str, Any]:
    """The text part of config.json; empty when it cannot be read."""
    path = checkpoint.file("config.json")
    try:
        value = json.loads(path.read_text(encoding="utf-8")) if path else {}
    except (OSError, ValueError):
        value = {}
    if not isinstance(value, dict):
        return {}
    inner = value.get("text_config")
    return value | inner if isinstance(inner, dict) else value


def _assumed(model: str) -> KnownLimits:
    note = (
        f"nothing is known here of the model {model!r}: prompts use the ids 8 to 4095 and a "
        "context of 4096; give vocab_size and max_model_len for others"
    )
    return KnownLimits(_TINY_PROMPTS, _TINY_CONTEXT, note)
