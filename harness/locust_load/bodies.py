"""What is written to the server for a request: path, headers and JSON, for either endpoint."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from engines.api import CbbenchError, Request
from harness.locust_load.options import PATHS, Api, PromptForm

_HIDDEN: Final = "[key]"


@dataclass(frozen=True, slots=True)
class ApiKey:
    """A secret that no text of ours repeats."""

    value: str | None = field(repr=False)

    @classmethod
    def from_environment(cls, variable: str | None) -> ApiKey:
        """Raises `CbbenchError` when the variable is named and not set."""
        if variable is None:
            return cls(None)
        value = os.environ.get(variable, "").strip()
        if not value:
            raise CbbenchError(
                f"--api-key-env names {variable}, which is not set here; "
                "set it for every locust process"
            )
        if not (value.isascii() and value.isprintable()):
            raise CbbenchError(f"the key in {variable} holds characters that no header may have")
        return cls(value)

    def hide_in(self, text: str) -> str:
        return text.replace(self.value, _HIDDEN) if self.value else text


@dataclass(frozen=True, slots=True)
class BodyForm:
    """How requests are put. `texts` has the prompts by request id where they are sent as text."""

    api: Api
    model: str
    prompt_form: PromptForm
    texts: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def path(self) -> str:
        return PATHS[self.api]

    def body(self, request: Request) -> bytes:
        """Streams, with a usage at the end: only the server can count its tokens."""
        sampling = request.sampling
        value: dict[str, Any] = {
            "model": self.model,
            **self._prompt(request),
            "temperature": sampling.temperature,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        if request.max_tokens is not None:
            value["max_tokens"] = request.max_tokens
        if request.ignore_eos:
            value["ignore_eos"] = True
        return json.dumps(value, separators=(",", ":")).encode()

    def _prompt(self, request: Request) -> dict[str, Any]:
        if self.prompt_form == "ids":
            return {"prompt": request.prompt_token_ids}
        text = self.texts[request.request_id]
        if self.api == "chat":
            return {"messages": [{"role": "user", "content": text}]}
        return {"prompt": text}


def headers(key: ApiKey) -> dict[str, str]:
    found = {"Content-Type": "application/json", "Accept": "text/event-stream"}
    if key.value is not None:
        found["Authorization"] = f"Bearer {key.value}"
    return found
