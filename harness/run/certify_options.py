"""The options of `cbbench certify`, read from text or refused in a sentence."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from engines.api import CbbenchError
from engines.remote.ladder import Rungs
from engines.settings import positive_float, positive_int

T = TypeVar("T")
_LONGEST_ANSWER = 100


def read_certify_options(
    rates: str, seconds: str, tokens: str, prompt_tokens: str, gap_ms: str, client_processes: str
) -> Rungs:
    """Raises `CbbenchError` naming the option, what was given and what is expected."""
    return Rungs(
        rates=tuple(_read(part, "--rates", positive_float) for part in rates.split(",")),
        seconds=_read(seconds, "--seconds", positive_float),
        tokens=_read(tokens, "--tokens", _answer),
        prompt_tokens=_read(prompt_tokens, "--prompt-tokens", positive_int),
        gap_s=_read(gap_ms, "--gap-ms", positive_float) / 1e3,
        processes=_read(client_processes, "--client-processes", positive_int),
    )


def _answer(text: str) -> int:
    value = positive_int(text)
    if value > _LONGEST_ANSWER:
        raise ValueError(f"a whole number from 1 to {_LONGEST_ANSWER}")
    return value


def _read(text: str, option: str, parse: Callable[[str], T]) -> T:
    try:
        return parse(text.strip())
    except ValueError as error:
        raise CbbenchError(f"{option} is {text!r}; expected {error}") from error
