"""Refuses a model whose answer at one position depends on later ones: it is no decoder."""

from __future__ import annotations

from typing import Final

import torch

from engines.api import CbbenchError
from engines.models.load import LoadedModel

_TOLERANCE: Final = {torch.float32: 1e-4}  # of the logits' spread
_HALF_TOLERANCE: Final = 2e-2  # bf16 rounds to a few thousandths of it


def require_causal(loaded: LoadedModel) -> None:
    """Feeds two texts that differ in their last token; what comes before must not change.

    For attention functions that transformers itself knows. Raises `CbbenchError`.
    """
    last = loaded.info.vocab_size - 1
    ids = torch.tensor([[1, 2, 1], [1, 2, last]], device=loaded.device) % loaded.info.vocab_size
    with torch.inference_mode():
        logits = loaded.model(input_ids=ids, use_cache=False).logits[:, 0].float()
    allowed = _TOLERANCE.get(loaded.dtype, _HALF_TOLERANCE) * logits[0].std().item()
    if (logits[0] - logits[1]).abs().max().item() > allowed:
        raise CbbenchError(
            f"model {loaded.info.name!r} looks at later tokens, so it is an encoder; "
            "expected a decoder that writes text"
        )
