"""Token ids and texts by a model's own tokenizer, which lives in a process of its own.

Knows the default model's vocabulary by heart, so that a run with it starts no such process.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from typing import Any, Final

from engines.api import CbbenchError
from workloads.workload import ModelLimits

TINY: Final = "tiny"
TINY_LIMITS: Final = ModelLimits(4096, 4096, tuple(range(8)))
_PATIENCE_S: Final = 180.0


def known_limits(tokenizer: str) -> ModelLimits:
    """Vocabulary, context and special ids. Raises `CbbenchError` when they cannot be known."""
    if tokenizer == TINY:
        return TINY_LIMITS
    found = _ask({"model": tokenizer, "describe": True})
    return ModelLimits(
        found["vocab_size"], found["max_model_len"] or 2**31, tuple(found["special_token_ids"])
    )


def encode(tokenizer: str, texts: Sequence[str], *, chat: bool) -> list[list[int]]:
    ids: list[list[int]] = _ask({"model": tokenizer, "encode": list(texts), "chat": chat})[
        "token_ids"
    ]
    return ids


def decode(tokenizer: str, token_ids: Sequence[Sequence[int]]) -> list[str]:
    """Special tokens are written out."""
    texts: list[str] = _ask({"model": tokenizer, "decode": [list(ids) for ids in token_ids]})[
        "texts"
    ]
    return texts


def _ask(question: dict[str, Any]) -> dict[str, Any]:
    command = [sys.executable, "-m", "harness.locust_load.tokenizer_process"]
    try:
        done = subprocess.run(
            command,
            input=json.dumps(question),
            capture_output=True,
            text=True,
            timeout=_PATIENCE_S,
            check=True,
        )
        found: dict[str, Any] = json.loads(done.stdout)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        raise CbbenchError(
            f"the tokenizer of {question['model']!r} gave no answer ({type(error).__name__}); "
            "give --prompt-form ids and --vocab-size to do without it"
        ) from error
    if "error" in found:
        raise CbbenchError(found["error"])
    return found
