"""The one function that transformers' models call for attention, and who answers it.

Registering it under a name makes an unmodified model dispatch every attention layer to it; the
step's own object travels through the model as the keyword argument `paged_step`. No mask is
registered for the name, so that the model makes none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

import torch
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, PreTrainedModel

from engines.loop.attention.backend import LayerCall, StepAttention
from engines.loop.attention.cache import LayerShape, PagedCache

# transformers matches "flash", "sdpa", "flex" and "paged|" as substrings of such a name.
ATTENTION_NAME: Final = "cbbench_blocks"


@dataclass(frozen=True, slots=True)
class LayerInputs:
    """What a model hands to attention: new tokens only, `[T, heads, dim]`."""

    query: torch.Tensor
    key: torch.Tensor
    value: torch.Tensor
    scaling: float
    window: int | None
    softcap: float | None
    sinks: torch.Tensor | None


class PagedStep(Protocol):
    """What answers the layers of one forward pass."""

    def attend(self, layer: int, inputs: LayerInputs) -> torch.Tensor:
        """[T, Hq, Dv]."""
        ...


def register_attention() -> None:
    """Makes `ATTENTION_NAME` known to transformers. Doing it twice changes nothing."""
    AttentionInterface.register(ATTENTION_NAME, attention_function)


def attention_function(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    s_aux: torch.Tensor | None = None,
    position_bias: torch.Tensor | None = None,
    paged_step: PagedStep | None = None,
    **_unused: Any,  # transformers hands over whatever else a model's forward was given
) -> tuple[torch.Tensor, None]:
    """Answers one layer; tensors come as `[1, heads, T, dim]`, the result is `[1, T, Hq, Dv]`."""
    if paged_step is None:
        raise RuntimeError(f"{ATTENTION_NAME} was called outside a step of the loop's executor")
    assert attention_mask is None, "a mask was made for paged attention, which has its own"
    assert position_bias is None, "paged attention knows no position bias"
    assert query.shape[0] == 1, "the packed batch is one row"
    inputs = LayerInputs(
        query=query[0].transpose(0, 1),
        key=key[0].transpose(0, 1),
        value=value[0].transpose(0, 1),
        scaling=query.shape[-1] ** -0.5 if scaling is None else scaling,
        window=sliding_window,
        softcap=softcap,
        sinks=s_aux,
    )
    return paged_step.attend(_layer_index(module), inputs)[None], None


class CachedStep:
    """A step over the paged cache: writes the new keys and values, then lets a backend attend."""

    def __init__(self, cache: PagedCache, slots: torch.Tensor, attention: StepAttention) -> None:
        self._cache = cache
        self._slots = slots
        self._attention = attention

    def attend(self, layer: int, inputs: LayerInputs) -> torch.Tensor:
        cache = self._cache
        cache.write(layer, self._slots, inputs.key, inputs.value)
        return self._attention.attend(
            LayerCall(
                query=inputs.query,
                key=inputs.key,
                value=inputs.value,
                key_cache=cache.keys[layer],
                value_cache=cache.values[layer],
                scaling=inputs.scaling,
                window=inputs.window,
                softcap=inputs.softcap,
                sinks=inputs.sinks,
            )
        )


class LayerRecorder:
    """Answers one sequence densely and notes what each layer would keep."""

    def __init__(self) -> None:
        self.layers: dict[int, LayerShape] = {}

    def attend(self, layer: int, inputs: LayerInputs) -> torch.Tensor:
        if layer in self.layers:
            raise RuntimeError(f"layer {layer} attends twice in one pass")
        key, value = inputs.key, inputs.value
        shape = LayerShape(key.shape[1], key.shape[2], value.shape[2], key.dtype, inputs.window)
        self.layers[layer] = shape
        return scaled_dot_product_attention(
            inputs.query.transpose(0, 1),
            key.transpose(0, 1),
            value.transpose(0, 1),
            is_causal=True,
            scale=inputs.scaling,
            enable_gqa=True,
        ).transpose(0, 1)


def discover_layers(model: PreTrainedModel) -> Mapping[int, LayerShape]:
    """What each attention layer of `model` keeps of a token, by running one token through it."""
    recorder = LayerRecorder()
    token = torch.zeros(1, 1, dtype=torch.long, device=model.device)
    run_packed(model, token, token, recorder, None)
    return recorder.layers


def run_packed(
    model: PreTrainedModel,
    input_ids: torch.Tensor,
    position_ids: torch.Tensor,
    step: PagedStep,
    last_indices: torch.Tensor | None,
) -> torch.Tensor:
    """Logits [N, vocabulary] of the tokens at `last_indices` (all, if `None`).

    `input_ids` and `position_ids` are the packed row [1, T].
    """
    kept: torch.Tensor | int = 0 if last_indices is None else last_indices
    with torch.inference_mode():
        logits: torch.Tensor = model(
            input_ids=input_ids,
            position_ids=position_ids,
            use_cache=False,
            logits_to_keep=kept,
            paged_step=step,
        ).logits[0]
    if last_indices is not None and len(logits) != len(last_indices):
        return logits[last_indices]  # a model that does not know `logits_to_keep`
    return logits


def _layer_index(module: torch.nn.Module) -> int:
    index = getattr(module, "layer_idx", None)
    if not isinstance(index, int):
        raise RuntimeError(f"{type(module).__name__} calls attention without a layer_idx")
    return index
