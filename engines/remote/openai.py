"""The engine `openai`: any server with OpenAI's API, spoken to as a benchmark's client must.

Glues together what the other modules here do: options, what the server says of itself, a player of
schedules. Holds no model; what only a server can know stays `None`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from engines.api import (
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
from engines.remote.certificate import Certificate, certify
from engines.remote.client import Client, Player, Target
from engines.remote.client_processes import ClientProcesses
from engines.remote.discovery import ServerFacts, discover, reset_caches
from engines.remote.key import read_key, without_key
from engines.remote.listeners import listeners
from engines.remote.open_files import allow_open_files
from engines.remote.options import RemoteOptions, read_options
from engines.remote.scrape import Scraper, fetch_page

MOST_CONNECTIONS: Final = 4096
_FILES_OF_OUR_OWN: Final = 64
Schedule = tuple[float | None, ...]
_AS_TEXT: Final = (
    "prompts are sent as text; the server may count other lengths than those drawn, "
    "see its prompt tokens"
)


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What was found out about a target: from the server first, then from the run's model."""

    facts: ServerFacts
    model: str
    max_model_len: int
    prompts: PromptLimits
    notes: tuple[str, ...]


def build(settings: Mapping[str, JsonValue], context: BuildContext) -> RemoteEngine:
    """Raises `CbbenchError` for settings that cannot be; a server that is down is no mistake."""
    return RemoteEngine("openai", read_options(settings), context)


class RemoteEngine:
    """One server, and the client that plays against it."""

    def __init__(self, name: str, options: RemoteOptions, context: BuildContext) -> None:
        self._name = name
        self._options = options
        self._expected = 1
        self._processes = options.client_processes or context.client_processes
        self._certificates: dict[Schedule, Certificate] = {}
        self._schedule: Schedule = ()
        limit = min(
            options.max_connections or MOST_CONNECTIONS,
            allow_open_files(MOST_CONNECTIONS + _FILES_OF_OUR_OWN) - _FILES_OF_OUR_OWN,
        )
        tokenizer = options.tokenizer or context.model
        target = Target(
            options, options.model or "", tokenizer, limit, read_key(options.api_key_env)
        )
        self._client = Client(target)
        question = discover(self._client.http, options.root, options.model)
        facts: ServerFacts = self._client.call(question)
        facts = replace(facts, problem=without_key(facts.problem, target.key))
        self._found = look_around(options, facts, context)
        self._client.aim(self._found.model)
        self._target = replace(target, model=self._found.model)
        self._scraper = Scraper(options.root, target.key) if options.scrape else None
        self._player = self._client if self._processes == 1 else self._make_player(self._target)

    def describe(self) -> EngineInfo:
        found = self._found
        text_note = () if self._options.sends_ids else (_AS_TEXT,)
        return EngineInfo(
            self._name,
            describe_options(self._target, found),
            max_model_len=found.max_model_len,
            slots=None,
            notes=(*found.notes, *text_note),
            prompts=found.prompts,
        )

    def prepare(self, requests: Sequence[Request], max_concurrency: int | None) -> None:
        """Writes the bodies beforehand, and notes how many connections may be wanted."""
        self._expected = min(max_concurrency or len(requests), self._target.limit)
        self._player.prepare(requests)
        self._schedule = schedule_of(requests, max_concurrency)
        if self._options.certify and requests and self._schedule not in self._certificates:
            self._certificates[self._schedule] = certify(
                self._make_player,
                self._target,
                requests,
                max_concurrency=max_concurrency,
                processes=self._processes,
            )

    def _make_player(self, target: Target) -> Player:
        if self._processes == 1:
            return Client(target)
        return ClientProcesses(target, self._processes)

    def reset(self) -> None:
        """Asks the server to forget, where it can, and opens the connections that will be used."""
        facts, client = self._found.facts, self._client
        client.call(reset_caches(client.http, self._options.root, facts.kind))
        if facts.keeps_alive:
            self._player.warm(self._expected)

        if self._scraper is not None:
            self._scraper.begin(self._metrics_page())

    def run(self, source: RequestSource, sink: Sink, clock: Clock) -> None:
        if self._scraper is None:
            self._player.run(source, sink, clock)
            return
        self._scraper.watch()
        try:
            self._player.run(source, sink, clock)
        finally:
            self._scraper.unwatch()

    def stop(self) -> None:
        self._player.stop()

    def server_pids(self) -> Sequence[int]:
        return listeners(self._options.root)

    def closing_s(self) -> float:
        return 0.0

    def observations(self) -> Mapping[str, JsonValue]:
        certificate = self._certificates.get(self._schedule)
        scraper = self._scraper
        return {
            "client": {
                "processes": self._processes,
                "connection_retries": self._player.retried,
                "certificate": None if certificate is None else certificate.to_json(),
            },
            "server": None if scraper is None else scraper.report(self._metrics_page()),
        }

    def _metrics_page(self) -> str:
        page: str = self._client.call(fetch_page(self._client.http, self._options.root))
        return page

    def close(self) -> None:
        if self._player is not self._client:
            self._player.close()
        self._client.close()


def schedule_of(requests: Sequence[Request], max_concurrency: int | None) -> Schedule:
    """What makes two cells' loads the same to a client."""
    return (max_concurrency, *(request.scheduled_s for request in requests))


def look_around(options: RemoteOptions, facts: ServerFacts, context: BuildContext) -> Surroundings:
    """Fills in what the options left open."""
    known = prompt_limits(context.model)
    prompts = known.prompts
    if options.vocab_size is not None:
        special = tuple(i for i in prompts.special_token_ids if i < options.vocab_size)
        prompts = PromptLimits(options.vocab_size, special)
    notes = [facts.problem, known.note if options.vocab_size is None else ""]
    if options.model and facts.models and options.model not in facts.models:
        notes.append(f"the server does not list the model {options.model!r}")
    wanted = context.max_model_len or known.max_model_len
    return Surroundings(
        facts=facts,
        model=options.model or (facts.models[0] if facts.models else context.model_name),
        max_model_len=options.max_model_len or min(facts.max_model_len or wanted, wanted),
        prompts=prompts,
        notes=tuple(note for note in notes if note),
    )


def describe_options(target: Target, found: Surroundings) -> dict[str, JsonValue]:
    """Every setting in force; of the key only the name of its variable."""
    options = target.options
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
        "max_connections": target.limit,
        "idle_timeout": options.idle_timeout,
        "grace": options.grace,
        "keepalive": options.keepalive,
        "connection_retries": options.connection_retries,
        "certify": options.certify,
        "scrape": options.scrape,
        "serves": options.serves,
        "vocab_size": found.prompts.vocab_size,
    }
