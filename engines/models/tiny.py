"""The built-in model `tiny`: a small Llama with random weights, equal everywhere.

It exists so that the main job needs no download. The weights mean nothing; they are drawn so
that greedy output wanders instead of repeating one token.
"""

from __future__ import annotations

from typing import Final

import torch
from transformers import AutoModelForCausalLM, GenerationConfig, LlamaConfig, PreTrainedModel

VOCAB_SIZE: Final = 4096
PAD_ID: Final = 0
BOS_ID: Final = 1
EOS_ID: Final = 2
_SEED: Final = 20_240_229
# At 0.02, the usual width, the embedding of the last token outweighs what the layers add and
# greedy output repeats; at 0.05 about 190 of 200 tokens differ.
_WEIGHT_STD: Final = 0.05


def tiny_config() -> LlamaConfig:
    """About 25.7 million parameters."""
    return LlamaConfig(
        vocab_size=VOCAB_SIZE,
        hidden_size=512,
        intermediate_size=1408,
        num_hidden_layers=8,
        num_attention_heads=8,
        num_key_value_heads=4,
        max_position_embeddings=4096,
        tie_word_embeddings=True,
        pad_token_id=PAD_ID,
        bos_token_id=BOS_ID,
        eos_token_id=EOS_ID,
    )


def build_tiny(dtype: torch.dtype, attn_implementation: str) -> PreTrainedModel:
    """Draws in float32 on the CPU and casts, so that every dtype rounds the same weights."""
    model: PreTrainedModel = AutoModelForCausalLM.from_config(
        tiny_config(), attn_implementation=attn_implementation, dtype=torch.float32
    )
    generator = torch.Generator().manual_seed(_SEED)
    bound = _WEIGHT_STD * 3**0.5
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 1:
                parameter.fill_(1.0)
            else:
                parameter.uniform_(-bound, bound, generator=generator)
            # Parameters only: the rotary frequencies stay in float32, as from_pretrained has it.
            parameter.data = parameter.data.to(dtype)
    model.tie_weights()
    model.config.dtype = dtype
    model.generation_config = GenerationConfig(
        pad_token_id=PAD_ID, bos_token_id=BOS_ID, eos_token_id=EOS_ID
    )
    return model
