"""Token ids as text and text as a number of tokens, for servers that take or tell no ids.

The tokenizer is loaded when it is first used, which for most servers is never.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from engines.api import CbbenchError
from engines.registry import BuildContext
from engines.remote.options import RemoteOptions


@dataclass(frozen=True, slots=True)
class TextTools:
    """`count` is `None` unless a tokenizer was named: another model's would count wrongly."""

    decode: Callable[[Sequence[int]], str]
    count: Callable[[str], int] | None
    notes: tuple[str, ...] = ()


def text_tools(options: RemoteOptions, context: BuildContext) -> TextTools:
    """Raises `CbbenchError` when texts must be sent and no tokenizer can be had."""
    tokenizer = _lazily(options.tokenizer or context.model)
    count = None if options.tokenizer is None else _counter(tokenizer)
    if options.sends_ids:
        return TextTools(_decoder(tokenizer), count)
    tokenizer()  # now, so that what is wrong with it is said before the run
    note = (
        "prompts are sent as text; the server may count other lengths than those drawn, "
        "see its prompt tokens"
    )
    return TextTools(_decoder(tokenizer), count, (note,))


def _lazily(model: str) -> Callable[[], Any]:
    @cache
    def load() -> Any:
        from engines.models.text import load_tokenizer  # loads transformers

        try:
            return load_tokenizer(model)
        except CbbenchError as error:
            raise CbbenchError(
                f"{error}; prompts as text need a tokenizer, name one with tokenizer=PATH"
            ) from error

    return load


def _decoder(tokenizer: Callable[[], Any]) -> Callable[[Sequence[int]], str]:
    def decode(ids: Sequence[int]) -> str:
        text: str = tokenizer().decode(list(ids))
        return text

    return decode


def _counter(tokenizer: Callable[[], Any]) -> Callable[[str], int]:
    def count(text: str) -> int:
        return len(tokenizer().encode(text, add_special_tokens=False))

    return count
