"""Loads a causal language model for every in-process engine, and describes it.

Weights are read from safetensors only and no code of a checkpoint is run. What cannot be loaded
becomes one `CbbenchError`. Tokenizers are not loaded here.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from safetensors import SafetensorError
from transformers import (
    MODEL_FOR_CAUSAL_LM_MAPPING,
    AutoConfig,
    AutoModelForCausalLM,
    PreTrainedConfig,
    PreTrainedModel,
)
from transformers.utils import logging as transformers_logging

from engines.api import CbbenchError, ModelInfo
from engines.models.hardware import resolve_device, resolve_dtype, use_threads
from engines.models.limits import special_ids_on_disk
from engines.models.locate import Checkpoint, locate
from engines.models.prepare import prepare
from engines.models.tiny import build_tiny
from engines.models.tiny_tokenizer import SPECIAL_TOKENS, TINY
from engines.registry import BuildContext

_LOAD_ERRORS = (OSError, ValueError, RuntimeError, KeyError, ImportError, SafetensorError)


@dataclass
class LoadedModel:
    """A model ready to run: in eval mode, without gradients, on its device."""

    model: PreTrainedModel
    info: ModelInfo
    device: torch.device
    dtype: torch.dtype


def load_model(context: BuildContext, attn_implementation: str) -> LoadedModel:
    """Loads `context.model` and resolves what the context leaves on `auto`.

    `attn_implementation` is a name that transformers knows, or that was registered with it.
    Raises `CbbenchError` for a model that is missing, broken or no decoder.
    """
    device = resolve_device(context.device)
    dtype = resolve_dtype(context.dtype, device)
    use_threads(context.threads)
    transformers_logging.disable_progress_bar()
    if context.model == TINY:
        model = build_tiny(dtype, attn_implementation)
        special_ids = frozenset(range(len(SPECIAL_TOKENS)))
    else:
        checkpoint = locate(context.model)
        model = _load_checkpoint(checkpoint, dtype, attn_implementation)
        special_ids = special_ids_on_disk(checkpoint)
    model = model.to(device).eval().requires_grad_(False)
    prepare(model)
    info = _describe(context, model, special_ids, device, dtype)
    return LoadedModel(model=model, info=info, device=device, dtype=dtype)


def eos_token_ids(model: PreTrainedModel) -> tuple[int, ...]:
    """The ids that end an answer, as the checkpoint's generation settings have them."""
    generation = getattr(model, "generation_config", None)
    ids = getattr(generation, "eos_token_id", None)
    if ids is None:
        ids = getattr(model.config.get_text_config(), "eos_token_id", None)
    if ids is None:
        return ()
    return (ids,) if isinstance(ids, int) else tuple(ids)


def kv_bytes_per_token(config: PreTrainedConfig, dtype: torch.dtype) -> int:
    """Bytes of keys and values of one position over all layers, each counted as attention."""
    text = config.get_text_config()
    heads = getattr(text, "num_attention_heads", None)
    if heads is None:
        return 0
    head_dim = getattr(text, "head_dim", None) or text.hidden_size // heads
    kv_heads = getattr(text, "num_key_value_heads", None) or heads
    return int(2 * text.num_hidden_layers * kv_heads * head_dim * dtype.itemsize)


def _load_checkpoint(
    checkpoint: Checkpoint, dtype: torch.dtype, attn_implementation: str
) -> PreTrainedModel:
    name = checkpoint.name
    try:
        config = AutoConfig.from_pretrained(
            checkpoint.source, local_files_only=checkpoint.local, trust_remote_code=False
        )
    except _LOAD_ERRORS as error:
        raise CbbenchError(f"model {name!r} has no usable config: {_first_line(error)}") from error
    if type(config) not in MODEL_FOR_CAUSAL_LM_MAPPING:
        raise CbbenchError(
            f"model {name!r} is a {config.model_type}, expected a decoder that transformers loads "
            "with AutoModelForCausalLM"
        )
    try:
        model, report = AutoModelForCausalLM.from_pretrained(
            checkpoint.source,
            config=config,
            dtype=dtype,
            attn_implementation=attn_implementation,
            local_files_only=checkpoint.local,
            trust_remote_code=False,
            use_safetensors=True,
            output_loading_info=True,
        )
    except _LOAD_ERRORS as error:
        raise CbbenchError(
            f"model {name!r} cannot be loaded: {_first_line(error)}; "
            "check that its safetensors files are complete"
        ) from error
    if report["missing_keys"]:
        first = sorted(report["missing_keys"])[0]
        raise CbbenchError(
            f"model {name!r} lacks {len(report['missing_keys'])} weights, {first!r} among them; "
            "expected a complete decoder checkpoint"
        )
    loaded: PreTrainedModel = model
    return loaded


def _describe(
    context: BuildContext,
    model: PreTrainedModel,
    special_ids: frozenset[int],
    device: torch.device,
    dtype: torch.dtype,
) -> ModelInfo:
    text = model.config.get_text_config()
    eos = eos_token_ids(model)
    named = {getattr(text, f"{kind}_token_id", None) for kind in ("bos", "pad")}
    special = special_ids | set(eos) | {i for i in named if isinstance(i, int) and i >= 0}
    return ModelInfo(
        name=context.model_name,
        vocab_size=int(text.vocab_size),
        max_model_len=_max_model_len(context, text),
        eos_token_ids=eos,
        special_token_ids=tuple(sorted(i for i in special if i < text.vocab_size)),
        num_parameters=sum(p.numel() for p in model.parameters()),
        kv_bytes_per_token=kv_bytes_per_token(text, dtype),
        dtype=str(dtype).removeprefix("torch."),
        device=str(device),
        device_name=torch.cuda.get_device_name(device) if device.type == "cuda" else None,
    )


def _max_model_len(context: BuildContext, text: PreTrainedConfig) -> int:
    own: int | None = getattr(text, "max_position_embeddings", None)
    asked = context.max_model_len
    if asked is None:
        if own is None:
            raise CbbenchError(
                f"the config of model {context.model!r} names no context length; "
                "give --max-model-len"
            )
        return own
    if own is not None and asked > own:
        raise CbbenchError(
            f"got --max-model-len {asked}, but model {context.model!r} has a context of {own} "
            "tokens; give that or less"
        )
    return asked


def _first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0].rstrip(".:") if lines else type(error).__name__
