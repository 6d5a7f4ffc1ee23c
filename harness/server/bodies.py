"""What clients may send to the two completion endpoints, checked field by field.

A field that would change the answer and is not supported is refused unless it is at the value
that changes nothing; an unknown field is refused. Nothing is looked up here.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Annotated, Any, Final, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    PlainValidator,
    WithJsonSchema,
)
from pydantic_core import PydanticCustomError

MOST_STOPS: Final = 16
LONGEST_STOP: Final = 128
LOWEST_PRIORITY: Final = -100
HIGHEST_PRIORITY: Final = 100
LONGEST_USER: Final = 256
_INT64: Final = 2**63


def _only(*values: object) -> tuple[Any, WithJsonSchema]:
    """A field that is known but not supported: only values that change nothing pass."""

    def check(value: object) -> object:
        if value not in values:
            raise PydanticCustomError(
                "unsupported",
                "{value} is not supported; leave it out, or give {known}",
                {"value": _brief(value), "known": " or ".join(map(_brief, values))},
            )
        return value

    return PlainValidator(check), WithJsonSchema({"enum": list(values)})


def _brief(value: object) -> str:
    """As JSON; what is long or secret is not said again."""
    short = value is None or value in ([], {}) or isinstance(value, bool | int | float)
    return json.dumps(value) if short else "this value"


def _checked(check: Callable[[Any], Any], schema: dict[str, Any]) -> tuple[Any, WithJsonSchema]:
    return PlainValidator(check), WithJsonSchema(schema)


def _wrong(message: str) -> PydanticCustomError:
    return PydanticCustomError("wrong", "{message}", {"message": message})


def read_prompt(value: object) -> list[str] | list[list[int]]:
    """One text, one list of ids, or a batch of either, always as a batch."""
    if isinstance(value, str):
        return [_text(value)]
    if not isinstance(value, list) or not value:
        raise _wrong("expected a text, token ids, or a non-empty list of either")
    if all(isinstance(part, str) for part in value):
        return [_text(part) for part in value]
    if _are_ids(value):
        return [value]
    if all(isinstance(part, list) and _are_ids(part) for part in value):
        return value
    raise _wrong("expected texts only, or whole numbers >= 0 only, or lists of these only")


def _are_ids(values: list[object]) -> bool:
    return all(type(value) is int and value >= 0 for value in values)


def _text(value: str) -> str:
    try:
        value.encode()
    except UnicodeEncodeError:
        raise _wrong("a text has half of a surrogate pair, which is no character") from None
    return value


def read_stop(value: object) -> list[str]:
    """Stop strings as a list."""
    stops = [] if value is None else [value] if isinstance(value, str) else value
    if not isinstance(stops, list) or not all(isinstance(stop, str) for stop in stops):
        raise _wrong("expected a text or a list of texts")
    if len(stops) > MOST_STOPS or not all(0 < len(stop) <= LONGEST_STOP for stop in stops):
        raise _wrong(f"expected at most {MOST_STOPS} texts of 1 to {LONGEST_STOP} characters")
    return [_text(stop) for stop in stops]


_IDS: Final = {"type": "array", "items": {"type": "integer", "minimum": 0}, "minItems": 1}
_PROMPT_SCHEMA: Final = {
    "anyOf": [
        {"type": "string"},
        {"type": "array", "items": {"type": "string"}, "minItems": 1},
        _IDS,
        {"type": "array", "items": _IDS, "minItems": 1},
    ]
}
_STOP_TEXT: Final = {"type": "string", "minLength": 1, "maxLength": LONGEST_STOP}
_STOP_SCHEMA: Final = {
    "anyOf": [
        _STOP_TEXT,
        {"type": "array", "items": _STOP_TEXT, "maxItems": MOST_STOPS},
        {"type": "null"},
    ]
}
_Prompt = Annotated[list[str] | list[list[int]], *_checked(read_prompt, _PROMPT_SCHEMA)]
_Text = Annotated[str, AfterValidator(_text)]
_Stop = Annotated[list[str], *_checked(read_stop, _STOP_SCHEMA)]
_TokenIds = Annotated[list[Annotated[int, Field(ge=0)]], Field(max_length=MOST_STOPS)]


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


class StreamOptions(_Body):
    """`continuous_usage_stats` puts the usage so far into every chunk."""

    include_usage: bool = False
    continuous_usage_stats: bool = False
    include_obfuscation: Annotated[Any, *_only(None, False)] = None


class GenerationBody(_Body):
    """The fields that both endpoints share."""

    model: str | None = None
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    max_completion_tokens: Annotated[int, Field(ge=1)] | None = None
    min_tokens: Annotated[int, Field(ge=0)] = 0
    ignore_eos: bool = False
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    top_k: Annotated[int, Field(ge=-1)] | None = None
    seed: Annotated[int, Field(ge=-_INT64, lt=_INT64)] | None = None
    stop: _Stop = Field(default_factory=list, validate_default=True)
    stop_token_ids: _TokenIds | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    priority: int = 0
    skip_special_tokens: bool = True
    return_token_ids: bool | None = None
    user: Annotated[str, Field(max_length=LONGEST_USER), AfterValidator(_text)] | None = None

    n: Annotated[Any, *_only(None, 1)] = None
    presence_penalty: Annotated[Any, *_only(None, 0)] = None
    frequency_penalty: Annotated[Any, *_only(None, 0)] = None
    repetition_penalty: Annotated[Any, *_only(None, 1)] = None
    min_p: Annotated[Any, *_only(None, 0)] = None
    logit_bias: Annotated[Any, *_only(None, {})] = None
    include_stop_str_in_output: Annotated[Any, *_only(None, False)] = None
    use_beam_search: Annotated[Any, *_only(None, False)] = None
    response_format: Annotated[Any, *_only(None, {"type": "text"})] = None

    @property
    def answer_limit(self) -> int | None:
        """The newer name first."""
        return self.max_completion_tokens or self.max_tokens

    @property
    def clamped_priority(self) -> int:
        return min(max(self.priority, LOWEST_PRIORITY), HIGHEST_PRIORITY)


class CompletionBody(GenerationBody):
    """`POST /v1/completions`."""

    prompt: _Prompt
    best_of: Annotated[Any, *_only(None, 1)] = None
    echo: Annotated[Any, *_only(None, False)] = None
    logprobs: Annotated[Any, *_only(None)] = None
    suffix: Annotated[Any, *_only(None)] = None


class TextPart(_Body):
    type: Literal["text"]
    text: _Text


class ChatMessage(_Body):
    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: _Text | list[TextPart]
    name: _Text | None = None

    @property
    def text(self) -> str:
        if isinstance(self.content, str):
            return self.content
        return "".join(part.text for part in self.content)


class ChatBody(GenerationBody):
    """`POST /v1/chat/completions`."""

    messages: Annotated[list[ChatMessage], Field(min_length=1)]
    logprobs: Annotated[Any, *_only(None, False)] = None
    top_logprobs: Annotated[Any, *_only(None, 0)] = None
    tools: Annotated[Any, *_only(None, [])] = None
    tool_choice: Annotated[Any, *_only(None, "none", "auto")] = None
    parallel_tool_calls: Annotated[Any, *_only(None, True, False)] = None
    modalities: Annotated[Any, *_only(None, ["text"])] = None
    store: Annotated[Any, *_only(None, False)] = None
