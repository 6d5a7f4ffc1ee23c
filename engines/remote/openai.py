"""The engine `openai`: any server with OpenAI's API, spoken to as a benchmark's client must.

Glues together what the other modules here do: options, connections, the playing of a schedule,
what the server says of itself. Holds no model; what only a server can know stays `None`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import httpx

from engines.api import (
    CbbenchError,
    Clock,
    EngineInfo,
    JsonValue,
    PromptLimits,
    Request,
    RequestSource,
    Sink,
)
from engines.models.limits import prompt_limits
from engines.registry import BuildContext
from engines.remote.body import BodyWriter, Decode
from engines.remote.connections import Connections
from engines.remote.discovery import ServerFacts, discover, reset_caches
from engines.remote.emission import Emitter
from engines.remote.event_loop import new_loop
from engines.remote.exchange import Wire, stamping
from engines.remote.open_files import allow_open_files
from engines.remote.options import RemoteOptions, read_options
from engines.remote.playing import Play
from engines.remote.texts import text_tools

MOST_CONNECTIONS: Final = 4096
_FILES_OF_OUR_OWN: Final = 64
_PREPARED_TOKENS: Final = 20_000_000  # bodies of more are written when they are sent
_KEY_SHOWN_AS: Final = "[key]"


@dataclass(frozen=True, slots=True)
class Resolved:
    """The options with everything found out that they left open."""

    options: RemoteOptions
    key: str | None
    facts: ServerFacts
    model: str
    limit: int
    max_model_len: int
    prompts: PromptLimits
    notes: tuple[str, ...]


def build(settings: Mapping[str, JsonValue], context: BuildContext) -> RemoteEngine:
    """Raises `CbbenchError` for settings that cannot be; a server that is down is no mistake."""
    return RemoteEngine("openai", read_options(settings), context)


class RemoteEngine:
    """One server. Its loop runs only inside the calls, in the thread that makes them."""

    def __init__(self, name: str, options: RemoteOptions, context: BuildContext) -> None:
        self._name = name
        self._loop = new_loop()
        self._play: Play | None = None
        self._stopping = False
        self._messages: dict[str, httpx.Request] = {}
        self._expected = 1
        self._retried = 0
        key = read_key(options)
        limit = min(
            options.max_connections or MOST_CONNECTIONS,
            allow_open_files(MOST_CONNECTIONS + _FILES_OF_OUR_OWN) - _FILES_OF_OUR_OWN,
        )
        self._connections = self._loop.run_until_complete(_connect(options, key, limit))
        facts = self._loop.run_until_complete(
            discover(self._connections.client, options.root, options.model)
        )
        self._resolved = resolve(options, key, facts, limit, context)
        self._texts = text_tools(options, context)
        decode: Decode | None = None if options.sends_ids else self._texts.decode
        self._writer = BodyWriter(options, self._resolved.model, decode)

    def describe(self) -> EngineInfo:
        found = self._resolved
        return EngineInfo(
            self._name,
            describe_options(found),
            max_model_len=found.max_model_len,
            slots=None,
            notes=(*found.notes, *self._texts.notes),
            prompts=found.prompts,
        )

    def prepare(self, requests: Sequence[Request], max_concurrency: int | None) -> None:
        """Writes the bodies beforehand, and notes how many connections may be wanted."""
        self._expected = min(max_concurrency or len(requests), self._resolved.limit)
        self._messages.clear()
        if sum(len(request.prompt_token_ids) for request in requests) <= _PREPARED_TOKENS:
            self._messages = {r.request_id: self._message(r) for r in requests}

    def reset(self) -> None:
        """Asks the server to forget, where it can, and opens the connections that will be used."""
        self._loop.run_until_complete(self._get_ready())

    def run(self, source: RequestSource, sink: Sink, clock: Clock) -> None:
        options = self._resolved.options
        play = Play(
            source,
            self._message_of,
            limit=self._resolved.limit,
            idle_timeout_s=options.idle_timeout,
            grace_s=options.grace,
        )
        wire = Wire(
            client=self._connections.client,
            clock=clock,
            emitter=Emitter(sink, clock, self._loop, play.wake),
            retries=options.connection_retries,
            redact=self._redact,
            count_text=self._texts.count,
        )
        self._loop.set_exception_handler(lambda _, seen: play.fail(_error_of(seen)))
        self._play = play
        try:
            if not self._stopping:
                self._loop.run_until_complete(play.run(wire))
        finally:
            self._play = None
            self._stopping = False
            self._retried = play.retried

    def stop(self) -> None:
        self._stopping = True
        play = self._play
        if play is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(play.stop)

    def observations(self) -> Mapping[str, JsonValue]:
        return {"client": {"connection_retries": self._retried}}

    def close(self) -> None:
        if not self._loop.is_closed():
            self._loop.run_until_complete(self._connections.close())
            self._loop.close()

    async def _get_ready(self) -> None:
        found = self._resolved
        await reset_caches(self._connections.client, found.options.root, found.facts.kind)
        if found.facts.keeps_alive:
            await self._connections.warm(self._expected)

    def _message_of(self, request: Request) -> httpx.Request:
        """What was prepared for it; a retry of the same object is fine, its body is bytes."""
        return self._messages.get(request.request_id) or self._message(request)

    def _message(self, request: Request) -> httpx.Request:
        options = self._resolved.options
        return self._connections.client.build_request(
            "POST",
            options.root + options.path,
            content=self._writer.write(request),
            headers={"content-type": "application/json", "accept": "text/event-stream"},
        )

    def _redact(self, text: str) -> str:
        key = self._resolved.key
        return text.replace(key, _KEY_SHOWN_AS) if key else text


def read_key(options: RemoteOptions) -> str | None:
    """The key from its variable. Raises `CbbenchError` when that is not set."""
    name = options.api_key_env
    if name is None:
        return None
    key = os.environ.get(name, "").strip()
    if not key or not key.isascii() or not key.isprintable():
        raise CbbenchError(
            f"api_key_env={name}, but the variable {name} holds no key; "
            f"set it to one (printable ASCII), or leave api_key_env out"
        )
    return key


def resolve(
    options: RemoteOptions,
    key: str | None,
    facts: ServerFacts,
    limit: int,
    context: BuildContext,
) -> Resolved:
    """Fills in what was left open, from the server first and then from the run's model."""
    known = prompt_limits(context.model)
    prompts = known.prompts
    if options.vocab_size is not None:
        special = tuple(i for i in prompts.special_token_ids if i < options.vocab_size)
        prompts = PromptLimits(options.vocab_size, special)
    notes = [facts.problem, known.note if options.vocab_size is None else ""]
    if options.model and facts.models and options.model not in facts.models:
        notes.append(f"the server does not list the model {options.model!r}")
    wanted = context.max_model_len or known.max_model_len
    return Resolved(
        options=options,
        key=key,
        facts=facts,
        model=options.model or (facts.models[0] if facts.models else context.model_name),
        limit=limit,
        max_model_len=options.max_model_len or min(facts.max_model_len or wanted, wanted),
        prompts=prompts,
        notes=tuple(note for note in notes if note),
    )


def describe_options(found: Resolved) -> dict[str, JsonValue]:
    """Every setting in force; of the key only the name of its variable."""
    options = found.options
    return {
        "base_url": f"{options.root}/v1",
        "model": found.model,
        "server": found.facts.kind,
        "api": options.api,
        "api_key_env": options.api_key_env,
        "send_token_ids": options.sends_ids,
        "return_token_ids": options.return_token_ids,
        "extensions": options.extensions,
        "extra_body": dict(options.extra_body),
        "max_connections": found.limit,
        "idle_timeout": options.idle_timeout,
        "grace": options.grace,
        "keepalive": options.keepalive,
        "connection_retries": options.connection_retries,
        "vocab_size": found.prompts.vocab_size,
    }


async def _connect(options: RemoteOptions, key: str | None, limit: int) -> Connections:
    return Connections(
        options.root,
        limit=limit,
        keepalive_s=options.keepalive,
        connect_timeout_s=options.connect_timeout,
        headers={} if key is None else {"authorization": f"Bearer {key}"},
        traces=[stamping()],
    )


def _error_of(seen: Mapping[str, Any]) -> BaseException:
    """What a callback of the loop has met."""
    error = seen.get("exception")
    return error if isinstance(error, BaseException) else RuntimeError(str(seen.get("message")))
