"""A model's text side in the HTTP process: texts to ids, messages to a prompt, ids to text.

Works on the data that the engine's process sends; loads neither torch nor transformers.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from jinja2 import Template, TemplateError
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment
from tokenizers import Tokenizer

from engines.api import CbbenchError
from engines.models.text_data import TextData
from harness.server.detokenizer import Detokenizer

DEFAULT_CHAT_TEMPLATE: Final = (
    "{% for message in messages %}{{ message.role }}: {{ message.content }}\n{% endfor %}assistant:"
)
Message = Mapping[str, str]


class ChatTemplateRefused(Exception):
    """The template does not take these messages; the text says why."""


class ModelText:
    """One model's tokenizer and chat template. All methods are pure.

    Raises `CbbenchError` for a template that is no template.
    """

    def __init__(self, data: TextData) -> None:
        self._tokenizer = Tokenizer.from_str(data.tokenizer)
        self._specials = dict(data.special_tokens)
        self._has_own_template = data.chat_template is not None
        self._template = _compiled(data.chat_template or DEFAULT_CHAT_TEMPLATE)
        added = self._tokenizer.get_added_tokens_decoder()
        self._special_ids = frozenset(i for i, token in added.items() if token.special)

    def encode(self, text: str) -> list[int]:
        """With the special tokens that the tokenizer itself adds (a BOS, say)."""
        return list(self._tokenizer.encode(text).ids)

    def encode_chat(self, messages: Sequence[Message]) -> list[int]:
        """Raises `ChatTemplateRefused`. A template of the model's writes its own special tokens."""
        try:
            text = self._template.render(
                messages=messages, add_generation_prompt=True, **self._specials
            )
        except (TemplateError, TypeError, ValueError) as error:
            raise ChatTemplateRefused(str(error) or type(error).__name__) from error
        encoded = self._tokenizer.encode(text, add_special_tokens=not self._has_own_template)
        return list(encoded.ids)

    def detokenizer(self, *, skip_special_tokens: bool) -> Detokenizer:
        """For one answer."""
        skipped = self._special_ids if skip_special_tokens else frozenset()
        return Detokenizer(self._decode, skipped)

    def _decode(self, token_ids: Sequence[int]) -> str:
        return str(self._tokenizer.decode(token_ids, skip_special_tokens=False))


def _compiled(source: str) -> Template:
    try:
        return _environment().from_string(source)
    except TemplateError as error:
        raise CbbenchError(
            f"the model's chat template cannot be read: {error}; repair it, or serve a checkpoint "
            "without one to get the default"
        ) from error


def _environment() -> ImmutableSandboxedEnvironment:
    """What templates of published models expect to find, in a sandbox."""
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols]
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _raise
    environment.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
    return environment


def _to_json(value: Any, indent: int | None = None) -> str:
    """Jinja's own filter would escape characters for HTML."""
    return json.dumps(value, ensure_ascii=False, indent=indent)


def _raise(message: str) -> None:
    raise TemplateError(message)
