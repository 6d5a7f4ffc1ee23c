"""The options of `cbbench serve`, read from text into one frozen value or refused in a sentence.

What it shares with `cbbench run` (the engine, the model, the machine) the run's own reader reads.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from engines.api import CbbenchError
from engines.registry import EngineEntry, EngineSpec, installed_engines
from engines.settings import byte_size, natural
from harness.run.config import RunOptions, read_options
from harness.server.bounded_body import BodyLimits
from harness.server.serve import ServeConfig
from harness.server.service import Limits

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ServeOptions:
    """The options as typed; `None` where one was left out."""

    engine: str
    model: str = "tiny"
    served_model_name: str | None = None
    host: str = "127.0.0.1"
    port: str = "8000"
    api_key_env: str | None = None
    max_waiting: str = "256"
    max_body: str = "4MiB"
    device: str = "auto"
    dtype: str = "auto"
    threads: str | None = None
    kv_memory: str = "512MiB"
    max_model_len: str | None = None


def read_serve_options(
    options: ServeOptions,
    installed: Mapping[str, EngineEntry] | None = None,
    environment: Mapping[str, str] | None = None,
) -> ServeConfig:
    """Raises `CbbenchError` naming the option, what was given and what is expected."""
    entries = installed_engines() if installed is None else installed
    shared = read_options(
        RunOptions(
            engines=options.engine,
            workload="",
            model=options.model,
            device=options.device,
            dtype=options.dtype,
            threads=options.threads,
            kv_memory=options.kv_memory,
            max_model_len=options.max_model_len,
        ),
        entries,
    )
    if len(shared.engines) != 1:
        raise CbbenchError(
            f"--engine is {options.engine!r}, which names {len(shared.engines)} engines; "
            "expected one, start a server for each"
        )
    (engine,) = shared.engines
    _refuse_remote(engine, entries[engine.name])
    return ServeConfig(
        engine=engine,
        context=shared.context,
        model_name=options.served_model_name or shared.context.model_name,
        host=options.host,
        port=_read(options.port, "--port", _port),
        api_key=_api_key(options.api_key_env, os.environ if environment is None else environment),
        limits=Limits(
            most_waiting=_read(options.max_waiting, "--max-waiting", natural),
            body=BodyLimits(_read(options.max_body, "--max-body", byte_size)),
        ),
    )


def _refuse_remote(engine: EngineSpec, entry: EngineEntry) -> None:
    """What another server answers has no token ids that could be handed on."""
    if entry.builder.startswith("engines.remote."):
        raise CbbenchError(
            f"--engine is {engine.text!r}, which is a server already; "
            "expected an engine without one, such as continuous"
        )


def _api_key(name: str | None, environment: Mapping[str, str]) -> str | None:
    """By the variable's name only: a key on a command line is read by others."""
    if name is None:
        return None
    key = environment.get(name, "")
    if not key:
        raise CbbenchError(
            f"--api-key-env names {name!r}, which is not set or empty in the environment; "
            "put the key there"
        )
    return key


def _port(text: str) -> int:
    port = natural(text)
    if port > 65535:
        raise ValueError("a port, 0 to 65535")
    return port


def _read(text: str, option: str, parse: Callable[[str], T]) -> T:
    try:
        return parse(text)
    except ValueError as error:
        raise CbbenchError(f"{option} is {text!r}; expected {error}") from error
