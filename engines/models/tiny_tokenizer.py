"""The tokenizer of the model `tiny`: a byte-level BPE of 4096 entries, made without any text.

Every byte has an entry, so any text can be encoded and every id has text. The merges come from a
rule (common letters pair first) and not from a corpus: they compress English a little, and are
equal everywhere.
"""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Final

from tokenizers import AddedToken, Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

TINY: Final = "tiny"
SPECIAL_TOKENS: Final = (
    "<|pad|>",
    "<|bos|>",
    "<|eos|>",
    "<|system|>",
    "<|user|>",
    "<|assistant|>",
    "<|tool|>",
    "<|end|>",
)
_VOCAB_SIZE: Final = 4096
_LETTERS: Final = "etaoinshrdlcumwfgypbvkjxqz"  # by how common they are in English
_SPACE: Final = "Ġ"  # what a space byte is called in a byte-level BPE
CHAT_TEMPLATE: Final = (
    "{% for message in messages %}"
    "{{ '<|' + message['role'] + '|>' + message['content'] + '<|end|>' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)


def build_tiny_tokenizer(model_max_length: int = 4096) -> PreTrainedTokenizerFast:
    """Adds no special token to a text on its own; the chat template adds the role markers."""
    from transformers import PreTrainedTokenizerFast  # loads torch

    return PreTrainedTokenizerFast(
        tokenizer_object=tiny_backend(),
        pad_token="<|pad|>",
        bos_token="<|bos|>",
        eos_token="<|eos|>",
        chat_template=CHAT_TEMPLATE,
        model_max_length=model_max_length,
        clean_up_tokenization_spaces=False,
    )


def tiny_backend() -> Tokenizer:
    """The tokenizer itself, without what transformers puts around it."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    merges = _merges(_VOCAB_SIZE - len(SPECIAL_TOKENS) - len(alphabet))
    entries = [*SPECIAL_TOKENS, *alphabet, *(left + right for left, right in merges)]
    tokenizer = Tokenizer(BPE(vocab={text: i for i, text in enumerate(entries)}, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(
        [AddedToken(text, special=True, normalized=False) for text in SPECIAL_TOKENS]
    )
    return tokenizer


def _merges(count: int) -> list[tuple[str, str]]:
    """Letter pairs, a space before a letter or a pair, then pairs of pairs; common ones first."""
    pairs = _common_first(list(_LETTERS))
    joined = [left + right for left, right in pairs]
    spaced = [(_SPACE, piece) for piece in [*_LETTERS, *joined]]
    return [*pairs, *spaced, *_common_first(joined[:100])][:count]


def _common_first(pieces: list[str]) -> list[tuple[str, str]]:
    """All pairs of `pieces`, which come ordered, by the sum of their two places."""
    place = {piece: i for i, piece in enumerate(pieces)}
    return sorted(product(pieces, pieces), key=lambda p: (place[p[0]] + place[p[1]], p))
