"""A model's tokenizer and chat template as plain data, for a process that must not load torch.

The `tokenizers` library reads it back. Loads transformers only for a checkpoint; keeps nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from engines.api import CbbenchError
from engines.models.tiny_tokenizer import CHAT_TEMPLATE, TINY, tiny_backend


@dataclass(frozen=True, slots=True)
class TextData:
    """`tokenizer` is the JSON of the `tokenizers` library; `chat_template` is Jinja source.

    `special_tokens` are the texts that a chat template may name (`bos_token`, `eos_token`, ...).
    """

    tokenizer: str
    chat_template: str | None = None
    special_tokens: Mapping[str, str] = field(default_factory=dict)


def text_data(model: str) -> TextData:
    """Raises `CbbenchError` when the model's tokenizer cannot be read, or is not a fast one."""
    if model == TINY:
        specials = {"pad_token": "<|pad|>", "bos_token": "<|bos|>", "eos_token": "<|eos|>"}
        return TextData(tiny_backend().to_str(), CHAT_TEMPLATE, specials)
    from engines.models.text import load_tokenizer  # loads transformers, and torch with it

    tokenizer = load_tokenizer(model)
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        raise CbbenchError(
            f"model {model!r} has no fast tokenizer (tokenizer.json), which serving needs; "
            "convert it with save_pretrained of a fast tokenizer class"
        )
    template = tokenizer.chat_template
    if isinstance(template, dict):  # several by name
        template = template.get("default")
    specials = {
        name: text for name, text in tokenizer.special_tokens_map.items() if isinstance(text, str)
    }
    return TextData(backend.to_str(), template if isinstance(template, str) else None, specials)
