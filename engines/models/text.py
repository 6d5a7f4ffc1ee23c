"""Turns prompts into token ids with a model's own tokenizer. Loads no weights."""

from __future__ import annotations

from collections.abc import Sequence

from transformers import AutoTokenizer, PreTrainedTokenizerBase

from engines.api import CbbenchError
from engines.models.locate import locate
from engines.models.tiny_tokenizer import TINY, build_tiny_tokenizer


def load_tokenizer(model: str) -> PreTrainedTokenizerBase:
    """Raises `CbbenchError` when the model or its tokenizer cannot be read."""
    if model == TINY:
        return build_tiny_tokenizer()
    checkpoint = locate(model)
    try:
        return AutoTokenizer.from_pretrained(
            checkpoint.source, local_files_only=checkpoint.local, trust_remote_code=False
        )
    except (OSError, ValueError, KeyError, ImportError, AttributeError, TypeError) as error:
        raise CbbenchError(
            f"model {model!r} has no usable tokenizer ({type(error).__name__}); "
            "add its tokenizer files, or use a workload of drawn token ids"
        ) from error


def encode_prompts(model: str, texts: Sequence[str], *, chat: bool) -> list[list[int]]:
    """Ids of each text, with the special tokens that the tokenizer itself adds (a BOS, say).

    With `chat` each text is one user's message, put into the model's chat template.
    """
    tokenizer = load_tokenizer(model)
    if not chat:
        return [list(tokenizer.encode(text)) for text in texts]
    if tokenizer.chat_template is None:
        raise CbbenchError(
            f"model {model!r} has no chat template; "
            "give --skip-chat-template to send texts as they are"
        )
    return [_encode_chat(tokenizer, text) for text in texts]


def _encode_chat(tokenizer: PreTrainedTokenizerBase, text: str) -> list[int]:
    encoded = tokenizer.apply_chat_template(
        [{"role": "user", "content": text}], add_generation_prompt=True, return_dict=True
    )
    return list(encoded["input_ids"])
