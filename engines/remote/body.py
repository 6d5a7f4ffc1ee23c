"""The JSON of one request, as the server at hand can take it.

Token ids go as they are where they can; else the prompt is sent as text. Pure.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from engines.api import Request
from engines.remote.options import RemoteOptions

Decode = Callable[[Sequence[int]], str]


@dataclass(frozen=True, slots=True)
class BodyWriter:
    """`decode` turns ids into text; `None` only where ids are sent."""

    options: RemoteOptions
    model: str
    decode: Decode | None = None

    def write(self, request: Request) -> bytes:
        body: dict[str, Any] = {"model": self.model, **self._prompt(request)}
        if request.max_tokens is not None:
            body["max_tokens"] = request.max_tokens
        body |= {"temperature": request.sampling.temperature, "stream": True}
        body["stream_options"] = {"include_usage": True}
        body |= _sampled(request)
        if self.options.extensions:
            body["stream_options"] = {"include_usage": True, "continuous_usage_stats": True}
            body |= _extended(request)
        if self.options.return_token_ids:
            body["return_token_ids"] = True
        return json.dumps(_merged(body, self.options.extra_body), separators=(",", ":")).encode()

    def _prompt(self, request: Request) -> dict[str, Any]:
        if self.options.sends_ids:
            return {"prompt": request.prompt_token_ids}
        assert self.decode is not None
        text = self.decode(request.prompt_token_ids)
        if self.options.api == "chat":
            return {"messages": [{"role": "user", "content": text}]}
        return {"prompt": text}


def _sampled(request: Request) -> dict[str, Any]:
    """What means nothing to greedy decoding is not sent."""
    sampling = request.sampling
    if sampling.temperature == 0:
        return {}
    return {"top_p": sampling.top_p, "seed": sampling.seed}


def _extended(request: Request) -> dict[str, Any]:
    """Fields that OpenAI does not have and most other servers do."""
    found: dict[str, Any] = {}
    if request.ignore_eos:
        found["ignore_eos"] = True
    if request.stop_token_ids:
        found["stop_token_ids"] = request.stop_token_ids
    if request.sampling.temperature > 0 and request.sampling.top_k:
        found["top_k"] = request.sampling.top_k
    if request.priority:
        found["priority"] = request.priority
    return found


def _merged(body: Mapping[str, Any], extra: Mapping[str, Any]) -> dict[str, Any]:
    """The user's own fields win; one of `null` takes a field out."""
    return {key: value for key, value in {**body, **extra}.items() if value is not None}
