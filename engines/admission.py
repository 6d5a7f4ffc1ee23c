"""What any engine refuses at its door for the context's sake, and where an answer may end.

Numbers of one request only. What an engine's memory has room for, each engine adds itself.
"""

from __future__ import annotations

from collections.abc import Iterable

from engines.api import Request


def answer_bound(request: Request, longest: int) -> int:
    """The answer's bound: its own, or for `None` what the prompt leaves of `longest` tokens."""
    if request.max_tokens is not None:
        return request.max_tokens
    return max(1, longest - len(request.prompt_token_ids))


def stop_ids(request: Request, eos_token_ids: Iterable[int]) -> frozenset[int]:
    """The tokens at which the answer stops."""
    own = frozenset(request.stop_token_ids)
    return own if request.ignore_eos else own.union(eos_token_ids)


def context_refusal(prompt: int, answer: int, max_model_len: int) -> str:
    """Why a prompt and an answer of these lengths can never run; empty when they can."""
    if prompt < 1:
        return "the prompt is empty; expected at least 1 token"
    if answer < 1:
        return f"max_tokens is {answer}; expected at least 1"
    if prompt + answer > max_model_len:
        return (
            f"prompt {prompt} + max_tokens {answer} = {prompt + answer} tokens exceed "
            f"the context of {max_model_len}"
        )
    return ""
