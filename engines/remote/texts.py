"""Token ids as text and text as a number of tokens, for servers that take or tell no ids.

The tokenizer is loaded when it is first used, which for most servers is never.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from engines.api import CbbenchError
from engines.models.text_data import text_data
from engines.remote.body import Decode
from engines.remote.options import RemoteOptions

if TYPE_CHECKING:
    from tokenizers import Tokenizer


@dataclass(frozen=True, slots=True)
class TextTools:
    """`count` is `None` unless a tokenizer was named: another model's would count wrongly."""

    decode: Decode
    count: Callable[[str], int] | None


def text_tools(options: RemoteOptions, model: str) -> TextTools:
    """With the tokenizer of `model`.

    Raises `CbbenchError` when texts must be sent and it cannot be had.
    """
    tokenizer = _lazily(model)
    if not options.sends_ids or options.tokenizer is not None:
        tokenizer()  # now, so that what is wrong with it is said before the run
    return TextTools(
        _decoder(tokenizer), None if options.tokenizer is None else _counter(tokenizer)
    )


def _lazily(model: str) -> Callable[[], Tokenizer]:
    @cache
    def load() -> Tokenizer:
        from tokenizers import Tokenizer

        try:
            return Tokenizer.from_str(text_data(model).tokenizer)
        except CbbenchError as error:
            raise CbbenchError(
                f"{error}; prompts as text need a tokenizer, name one with tokenizer=PATH"
            ) from error

    return load


def _decoder(tokenizer: Callable[[], Tokenizer]) -> Decode:
    def decode(ids: Sequence[int]) -> str:
        text: str = tokenizer().decode(list(ids), skip_special_tokens=False)
        return text

    return decode


def _counter(tokenizer: Callable[[], Tokenizer]) -> Callable[[str], int]:
    def count(text: str) -> int:
        return len(tokenizer().encode(text, add_special_tokens=False).ids)

    return count
