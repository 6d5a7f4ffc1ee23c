"""What an OpenAI-compatible server says in its events: tokens, usage, an end, an error.

Understands completions and chat, streamed or in one piece, from servers that keep to the format
and from those that nearly do. Pure: no socket, no clock, no loop. Whoever reads the stream stamps
the times.

A chunk is not a token. How many tokens an event carried is known from its token ids or from a
usage that is sent along; else it counts as one until the final usage says how many there were.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any, Final, cast

from engines.api import CountedBy, FinishReason, Status

UNKNOWN_ID: Final = -1  # stands for a token whose id the server does not tell
_ONE_UNKNOWN: Final = (UNKNOWN_ID,)
_NONE: Final[tuple[int, ...]] = ()
_raw_decode: Final = json.JSONDecoder().raw_decode
_FINISH: Final[Mapping[str, FinishReason]] = {
    "length": "length",
    "max_tokens": "length",
    "stop": "stop",
    "eos": "stop",
    "eos_token": "stop",
    "stop_sequence": "stop",
    "tool_calls": "stop",
    "function_call": "stop",
}
_BROKEN_OFF: Final = ("error", "abort", "aborted", "cancelled")
_MESSAGE_KEYS: Final = ("message", "msg", "detail", "error", "description")
_LONGEST_MESSAGE: Final = 400


@dataclass(frozen=True, slots=True)
class Usage:
    """A server's own counts; `None` where it does not tell one."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None


class Completion:
    """One answer as its events tell it. `read` takes the data of each in turn.

    `counts` holds the number of tokens of every event that carried any. After an error nothing
    more is read.
    """

    __slots__ = (
        "_counts_along",
        "_finish",
        "_has_ids",
        "_told",
        "content",
        "counts",
        "done",
        "error",
        "finish_reason",
        "reasoning",
        "usage",
    )

    def __init__(self) -> None:
        self.content: list[str] = []
        self.reasoning: list[str] = []
        self.counts: list[int] = []
        self.usage = Usage()
        self.finish_reason: FinishReason | None = None
        self.error: str | None = None
        self.done = False
        self._finish: str | None = None
        self._has_ids = False
        self._counts_along: bool | None = None  # whether every event brings a usage of its own
        self._told = 0  # the last of those

    @property
    def text(self) -> str:
        """The content so far, without reasoning and tool calls."""
        return "".join(self.content)

    @property
    def ended(self) -> bool:
        """Whether the server has said that the answer is over."""
        return self.done or self._finish is not None

    def read(self, payload: bytes) -> Sequence[int]:
        """The ids of the tokens that the event carried, `UNKNOWN_ID` for each one untold."""
        if self.error is not None:
            return _NONE
        try:
            event = parsed(payload)
        except (ValueError, RecursionError):
            self._read_word(payload)
            return _NONE
        if not isinstance(event, dict):
            self.error = f"an event is not an object: {shortened(str(event))}"
            return _NONE
        if event.get("error") or "choices" not in event:
            self.error = error_message(event) or None
        usage = event.get("usage")
        if usage:
            self._read_usage(usage)
        choices = event.get("choices")
        if self.error is not None or not choices:
            return _NONE
        choice = choices[0] if isinstance(choices, list) else None
        if not isinstance(choice, dict):
            self.error = f"an event has choices that are none: {shortened(str(choices))}"
            return _NONE
        return self._read_choice(choice, has_usage=bool(usage))

    def _read_choice(self, choice: Mapping[str, Any], *, has_usage: bool) -> Sequence[int]:
        tokens = self._tokens(choice, has_usage)
        if tokens:
            self.counts.append(len(tokens))
        finish = choice.get("finish_reason")
        if finish:
            self._read_finish(str(finish), choice)
        return tokens

    def _read_word(self, payload: bytes) -> None:
        """An event that is no JSON: the end, nothing, or garbage."""
        word = payload.strip()
        if word == b"[DONE]":
            self.done = True
        elif word:
            self.error = f"an event is not JSON: {shortened(word.decode(errors='replace'))}"

    def _read_usage(self, usage: Any) -> None:
        if isinstance(usage, dict):
            details = usage.get("prompt_tokens_details")
            self.usage = Usage(
                _count(usage.get("prompt_tokens")),
                _count(usage.get("completion_tokens")),
                _count(details.get("cached_tokens")) if isinstance(details, dict) else None,
            )

    def _read_finish(self, finish: str, choice: Mapping[str, Any]) -> None:
        self._finish = finish
        self.finish_reason = _FINISH.get(finish)
        if finish in _BROKEN_OFF:
            self.error = error_message(choice) or f"the server ended the answer with {finish!r}"

    def _tokens(self, choice: Mapping[str, Any], has_usage: bool) -> Sequence[int]:
        has_text = self._take_text(choice)
        ids = choice.get("token_ids")
        if ids and _are_ids(ids):
            self._has_ids = True
            return cast(list[int], ids)
        if self._has_ids:
            return _NONE  # text that was held back, of tokens counted before
        told = self.usage.completion_tokens or 0 if has_usage else 0
        if self._counts_along is None and (has_text or told):
            self._counts_along = told > 0
        if self._counts_along:
            new, self._told = max(told - self._told, 0), max(told, self._told)
            return _ONE_UNKNOWN * new
        return _ONE_UNKNOWN if has_text else _NONE

    def _take_text(self, choice: Mapping[str, Any]) -> bool:
        """Whether the event had text on any channel."""
        text = choice.get("text")
        if text:
            self.content.append(str(text))
            return True
        delta = choice.get("delta") or choice.get("message")
        if not isinstance(delta, dict):
            return False
        content = _content_text(delta.get("content")) or _content_text(delta.get("refusal"))
        if content:
            self.content.append(content)
        thought = delta.get("reasoning") or delta.get("reasoning_content")  # some send both
        if thought:
            self.reasoning.append(str(thought))
        return bool(content or thought) or _calls_a_tool(delta)

    def outcome(self) -> tuple[Status, FinishReason | None, str]:
        """What became of the request, once its stream has ended: status, finish, reason."""
        if self.error is not None:
            return "failed", None, self.error
        if not self.ended:
            return "failed", None, "the stream was cut short"
        if not self.counts:
            told = self.usage.completion_tokens
            note = f" (usage tells {told} tokens)" if told else ""
            return "failed", None, f"the answer was empty where tokens were due{note}"
        return "ok", self.finish_reason, ""

    def final_counts(
        self, count_text: Callable[[str], int] | None = None
    ) -> tuple[list[int], CountedBy]:
        """The tokens of each event that carried any, by the best count that there is.

        The server's usage comes first. `count_text` is asked for the number of tokens of the
        joined text where the server gave neither usage nor ids.
        """
        told = self.usage.completion_tokens
        if told:  # 0 beside tokens that came is a count that was never made
            by: CountedBy = "usage"
            return (self.counts if sum(self.counts) == told else spread(told, self.counts)), by
        if self._has_ids:
            return self.counts, "ids"
        if count_text is not None and self.counts:
            number = count_text("".join([*self.reasoning, *self.content]))
            return spread(max(number, 1), self.counts), "tokenizer"
        return self.counts, "events"


def parsed(payload: bytes) -> Any:
    """`json.loads`, which for events this short spends most of its time before it parses.

    Raises `ValueError` or `RecursionError` as that does.
    """
    text = payload.decode()
    try:
        value, end = _raw_decode(text)
    except json.JSONDecodeError:
        return json.loads(text)
    return value if end == len(text) else json.loads(text)


def spread(total: int, counts: Sequence[int]) -> list[int]:
    """`total` tokens over the events that had `counts`, in whole numbers.

    More tokens than counted are spread in proportion. Fewer go evenly, and the first and the last
    event keep one as far as there are two, so that the answer's times stay its own.
    """
    weight, reached, gaps = sum(counts), [0], len(counts) - 1
    for place, seen in enumerate(accumulate(counts)):
        if total >= weight:
            reached.append(total * seen // weight)
        else:
            even = 1 + place * (total - 1) // gaps if gaps else total
            reached.append(min(total, even))
    return [after - before for before, after in pairwise(reached)]


def error_message(event: Mapping[str, Any]) -> str:
    """The sentence in an error of any shape; empty where nothing looks like one."""
    found: Any = event.get("error")
    if not found:
        found = next((event[key] for key in _MESSAGE_KEYS if event.get(key)), None)
    for _ in range(3):
        if not isinstance(found, dict):
            break
        inner = next((found[key] for key in _MESSAGE_KEYS if found.get(key)), None)
        found = json.dumps(found) if inner is None else inner
    return shortened(str(found)) if found else ""


def shortened(text: str, longest: int = _LONGEST_MESSAGE) -> str:
    """Outside text on one line, cut where it goes on for too long."""
    line = " ".join(text.split())
    return line if len(line) <= longest else line[:longest] + "..."


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _are_ids(ids: Any) -> bool:
    return isinstance(ids, list) and all(type(i) is int and 0 <= i < 2**31 for i in ids)


def _content_text(content: Any) -> str:
    """Text, or the texts of a list of parts."""
    if isinstance(content, list):
        return "".join(str(part.get("text") or "") for part in content if isinstance(part, dict))
    return str(content) if content else ""


def _calls_a_tool(delta: Mapping[str, Any]) -> bool:
    calls = delta.get("tool_calls") or ()
    functions = [call.get("function") for call in calls if isinstance(call, dict)]
    return any(
        isinstance(function, dict) and (function.get("name") or function.get("arguments"))
        for function in (*functions, delta.get("function_call"))
    )
