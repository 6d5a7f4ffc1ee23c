"""Speed-ups on the model's side, made once at load for every in-process engine.

The one place for them, so that engines are compared by how they schedule and not by their
linears. For now the model runs as published.
"""

from __future__ import annotations

from transformers import PreTrainedModel


def prepare(model: PreTrainedModel) -> None:
    """Changes `model` in place; outputs stay what they were."""
