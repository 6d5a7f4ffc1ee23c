"""Texts as token ids and token ids as texts, by a model's own tokenizer and chat template.

A checkpoint's tokenizer is read by a process of its own; what it gives is plain data.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Any, Final

from tokenizers import Tokenizer

from engines.api import CbbenchError
from engines.models.text_data import TextData, text_data
from engines.models.tiny_tokenizer import TINY
from harness.server.text import ChatTemplateRefused, ModelText

_PATIENCE_S: Final = 180.0


class Texts:
    """One tokenizer, read when it is first needed: for most runs never.

    All methods raise `CbbenchError` when it cannot be had.
    """

    def __init__(self, model: str, read: Callable[[str], TextData] | None = None) -> None:
        self._model = model
        self._read = read or read_text_data
        self._data: TextData | None = None

    def encode(self, texts: Sequence[str], *, chat: bool) -> list[list[int]]:
        """With `chat` each text is one user's message, put into the model's chat template."""
        data = self._have()
        model = ModelText(data)
        if not chat:
            return [model.encode(text) for text in texts]
        if data.chat_template is None:
            raise CbbenchError(
                f"model {self._model!r} has no chat template; "
                "give --skip-chat-template to send texts as they are"
            )
        try:
            return [model.encode_chat([{"role": "user", "content": text}]) for text in texts]
        except ChatTemplateRefused as error:
            raise CbbenchError(
                f"the chat template of model {self._model!r} does not take the prompts: {error}; "
                "give --skip-chat-template to send texts as they are"
            ) from error

    def decoder(self) -> Callable[[Sequence[int]], str]:
        """Special tokens are written out."""
        tokenizer = Tokenizer.from_str(self._have().tokenizer)
        return lambda ids: str(tokenizer.decode(list(ids), skip_special_tokens=False))

    def counter(self) -> Callable[[str], int]:
        """Counts a text's tokens, without special ones."""
        tokenizer = Tokenizer.from_str(self._have().tokenizer)
        return lambda text: len(tokenizer.encode(text, add_special_tokens=False).ids)

    def _have(self) -> TextData:
        self._data = self._data or self._read(self._model)
        return self._data


def read_text_data(model: str) -> TextData:
    """Raises `CbbenchError` when the model has no tokenizer that can be read."""
    if model == TINY:
        return text_data(model)
    command = [sys.executable, "-m", "harness.locust_load.tokenizer_process", model]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_PATIENCE_S, check=True
        )
        found: dict[str, Any] = json.loads(done.stdout)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        raise CbbenchError(
            f"the tokenizer of {model!r} could not be read ({type(error).__name__}); "
            "give --prompt-form ids to do without it"
        ) from error
    if "error" in found:
        raise CbbenchError(f"{found['error']}; name another with --tokenizer")
    return TextData(**found)
