"""The answers' JSON, as OpenAI's API has it: whole ones, and the chunks of a stream.

Pure: text and numbers in, dicts and bytes out. The two endpoints differ here and nowhere else.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from engines.api import FinishReason

Json = dict[str, Any]
DONE: Final = b"data: [DONE]\n\n"
Endpoint = Literal["completions", "chat"]
_WHOLE: Final[Mapping[Endpoint, str]] = {
    "completions": "text_completion",
    "chat": "chat.completion",
}
_CHUNK: Final[Mapping[Endpoint, str]] = {
    "completions": "text_completion",
    "chat": "chat.completion.chunk",
}


@dataclass(frozen=True, slots=True)
class Piece:
    """Some of one choice's answer. `token_ids` is shown only if it was asked for."""

    place: int
    text: str
    finish_reason: FinishReason | None = None
    token_ids: Sequence[int] | None = None
    prompt_token_ids: Sequence[int] | None = None


@dataclass(frozen=True, slots=True)
class Usage:
    """`cached_tokens` of `None`: the engine did not say."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int | None = None

    def as_json(self) -> Json:
        usage: Json = {
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.completion_tokens,
            "total_tokens": self.prompt_tokens + self.completion_tokens,
        }
        if self.cached_tokens is not None:
            usage["prompt_tokens_details"] = {"cached_tokens": self.cached_tokens}
        return usage


@dataclass(frozen=True, slots=True)
class Shape:
    """What all parts of one answer have in common."""

    endpoint: Endpoint
    answer_id: str
    created: int
    model: str

    def whole(self, pieces: Sequence[Piece], usage: Usage) -> Json:
        choices = [self._choice(piece, self._whole_content(piece.text)) for piece in pieces]
        return self._around(_WHOLE, choices) | {"usage": usage.as_json()}

    def role_chunk(self, place: int) -> Json | None:
        """What a chat stream begins with: who speaks. It carries no token."""
        if self.endpoint == "completions":
            return None
        content = {"delta": {"role": "assistant", "content": ""}}
        return self._around(_CHUNK, [self._choice(Piece(place, ""), content)])

    def chunk(self, piece: Piece) -> Json:
        content = {"text": piece.text} if self.endpoint == "completions" else _delta(piece)
        return self._around(_CHUNK, [self._choice(piece, content)])

    def usage_chunk(self, usage: Usage) -> Json:
        """The one without choices, after all others."""
        return self._around(_CHUNK, []) | {"usage": usage.as_json()}

    def _around(self, names: Mapping[Endpoint, str], choices: list[Json]) -> Json:
        return {
            "id": self.answer_id,
            "object": names[self.endpoint],
            "created": self.created,
            "model": self.model,
            "choices": choices,
        }

    def _choice(self, piece: Piece, content: Json) -> Json:
        choice: Json = {"index": piece.place, **content, "logprobs": None}
        choice["finish_reason"] = piece.finish_reason
        if piece.token_ids is not None:
            choice["token_ids"] = list(piece.token_ids)
        if piece.prompt_token_ids is not None:
            choice["prompt_token_ids"] = list(piece.prompt_token_ids)
        return choice

    def _whole_content(self, text: str) -> Json:
        if self.endpoint == "completions":
            return {"text": text}
        return {"message": {"role": "assistant", "content": text, "refusal": None}}


def _delta(piece: Piece) -> Json:
    is_bare_end = piece.finish_reason is not None and not piece.text
    return {"delta": {} if is_bare_end else {"content": piece.text}}


def as_event(value: Json) -> bytes:
    """One server-sent event."""
    return (
        b"data: " + json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode() + b"\n\n"
    )
