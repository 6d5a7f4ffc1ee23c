"""The engine `server` and its ready-made forms: a server that a run starts, measures and ends.

Builds the command and hands the rest on: the process to `managed_server`, the talking to
`openai`'s engine.
"""

from __future__ import annotations

import importlib.util
import shlex
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, cast

from engines.api import (
    CbbenchError,
    Clock,
    EngineInfo,
    JsonValue,
    Request,
    RequestSource,
    Sink,
)
from engines.models.aside import dtype_of, files_of
from engines.registry import BuildContext
from engines.remote.key import read_key
from engines.remote.managed_server import ManagedServer, filled_in, free_port, listens
from engines.remote.openai import RemoteEngine
from engines.remote.options import read_options

_HOST: Final = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Recipe:
    """How a server is started. `{model}`, `{port}`, `{host}` and `{key}` are filled in."""

    name: str
    command: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)


def build_server(settings: Mapping[str, JsonValue], context: BuildContext) -> ManagedEngine:
    """Raises `CbbenchError` for a command that cannot be, or a server that does not come up."""
    text = str(settings["command"] or "")
    try:
        command = shlex.split(text)
    except ValueError as error:
        raise CbbenchError(f"command={text!r} cannot be read: {error}") from None
    if not command:
        raise CbbenchError(
            "the engine 'server' needs a command, as in "
            'server[command="vllm serve {model} --port {port}"]'
        )
    if settings["port"] is None and not any("{port}" in word for word in command):
        raise CbbenchError(
            f"command={text!r} does not say {{port}}, so nobody knows where it will listen; "
            "put {port} into it, or give port=N"
        )
    return ManagedEngine(Recipe("server", command), settings, context)


def build_vllm(settings: Mapping[str, JsonValue], context: BuildContext) -> ManagedEngine:
    """vLLM with the run's model, data type, context and memory."""
    python = _python_of("vllm", settings)
    command = [python, "-m", "vllm.entrypoints.openai.api_server", "--model", "{model}"]
    command += ["--host", "{host}", "--port", "{port}", "--served-model-name", context.model_name]
    command += ["--max-num-seqs", str(settings["max_num_seqs"])]
    command += ["--kv-cache-memory-bytes", str(settings["kv_memory"] or context.kv_memory)]
    budget = settings["max_num_batched_tokens"]
    command += [] if budget is None else ["--max-num-batched-tokens", str(budget)]
    caching = "enable" if settings["prefix_caching"] else "no-enable"
    command += [f"--{caching}-prefix-caching", *_model_bounds(context, "--max-model-len")]
    return ManagedEngine(Recipe("vllm", [*command, *_more(settings)]), settings, context)


def build_sglang(settings: Mapping[str, JsonValue], context: BuildContext) -> ManagedEngine:
    """SGLang with the run's model, data type and context, and its metrics page."""
    python = _python_of("sglang", settings)
    command = [python, "-m", "sglang.launch_server", "--model-path", "{model}"]
    command += ["--host", "{host}", "--port", "{port}", "--served-model-name", context.model_name]
    command += ["--max-running-requests", str(settings["max_num_seqs"]), "--enable-metrics"]
    budget = settings["max_num_batched_tokens"]
    command += [] if budget is None else ["--chunked-prefill-size", str(budget)]
    command += [] if settings["prefix_caching"] else ["--disable-radix-cache"]
    command += [*_model_bounds(context, "--context-length"), *_more(settings)]
    return ManagedEngine(Recipe("sglang", command), settings, context)


def build_served(settings: Mapping[str, JsonValue], context: BuildContext) -> ManagedEngine:
    """`cbbench serve` over an engine of ours: the same engine, with HTTP before it."""
    command = [sys.executable, "-m", "harness.cli.main", "serve", "--model", "{model}"]
    command += ["--host", "{host}", "--port", "{port}", "--engine", str(settings["engine"])]
    command += ["--served-model-name", context.model_name, "--device", context.device]
    command += ["--dtype", context.dtype, "--kv-memory", str(context.kv_memory)]
    command += ["--max-waiting", str(settings["max_waiting"])]
    if context.threads is not None:
        command += ["--threads", str(context.threads)]
    if context.max_model_len is not None:
        command += ["--max-model-len", str(context.max_model_len)]
    recipe = Recipe("served", command)
    return ManagedEngine(recipe, {**settings, "serves": settings["engine"]}, context)


class ManagedEngine:
    """A server with its client. The server lives from here to `close`."""

    def __init__(
        self, recipe: Recipe, settings: Mapping[str, JsonValue], context: BuildContext
    ) -> None:
        self._port = _port(cast("int | None", settings["port"]))
        root = f"http://{_HOST}:{self._port}"
        options = read_options({**settings, "base_url": root})
        key = read_key(options.api_key_env)
        _check_words(recipe.command, options.api_key_env, key)
        self._folder = Path(tempfile.mkdtemp(prefix="cbbench-model-"))
        self._recipe = recipe
        self._server: ManagedServer | None = None
        try:
            values = {"model": self._model(context), "port": str(self._port), "host": _HOST}
            self._server = ManagedServer(
                filled_in(recipe.command, {**values, "key": key or ""}),
                recipe.environment,
                cast(float, settings["stop_timeout"]),
                self._folder,
                key,
            )
            timeout_s = cast(float, settings["start_timeout"])
            self._server.wait(f"{root}/v1/models", timeout_s)
            self._client = RemoteEngine(recipe.name, options, context)
        except BaseException:
            self._end()
            raise

    def _model(self, context: BuildContext) -> str:
        """Our own server knows `tiny`; others are given files, if they want a model at all."""
        wanted = any("{model}" in word for word in self._recipe.command)
        if not wanted or self._recipe.name == "served":
            return context.model
        return files_of(context.model, self._folder)

    def describe(self) -> EngineInfo:
        info = self._client.describe()
        shown = [_without_folders(word) for word in self._recipe.command]
        return replace(info, settings={"command": shlex.join(shown), **info.settings})

    def prepare(self, requests: Sequence[Request], max_concurrency: int | None) -> None:
        self._client.prepare(requests, max_concurrency)

    def reset(self) -> None:
        self._client.reset()

    def run(self, source: RequestSource, sink: Sink, clock: Clock) -> None:
        """Raises `RuntimeError` when the server did not live to the end of it."""
        self._client.run(source, sink, clock)
        ended = None if self._server is None else self._server.fallen(self._port)
        if ended is not None:
            raise RuntimeError(f"the server {ended}")

    def stop(self) -> None:
        self._client.stop()

    def server_pids(self) -> Sequence[int]:
        return self._client.server_pids()

    def closing_s(self) -> float:
        return 0.0 if self._server is None else self._server.closing_s

    def observations(self) -> Mapping[str, JsonValue]:
        return self._client.observations()

    def close(self) -> None:
        self._client.close()
        self._end()

    def _end(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
        shutil.rmtree(self._folder, ignore_errors=True)


def _port(wanted: int | None) -> int:
    """`wanted`, or any that is free. Raises `CbbenchError` where somebody listens already."""
    if wanted is not None and listens(wanted):
        raise CbbenchError(
            f"port={wanted}, but a server listens there already and would be measured instead; "
            "end it, or leave port out"
        )
    return wanted or free_port()


def _python_of(package: str, settings: Mapping[str, JsonValue]) -> str:
    """The interpreter that has `package`. Raises `CbbenchError` when none is named or found."""
    named = settings["python"]
    if named is not None:
        path = Path(str(named)).expanduser()
        if not path.is_file():
            raise CbbenchError(
                f"python={named} is no file; give the interpreter that has {package}"
            )
        return str(path.absolute())
    if importlib.util.find_spec(package) is None:
        raise CbbenchError(
            f"{package} is not installed here; install it into an environment of its own and give "
            f"its interpreter, as in {package}[python=PATH/bin/python]"
        )
    return sys.executable


def _model_bounds(context: BuildContext, length_option: str) -> list[str]:
    """The number format and the context that the run's other engines have."""
    found = ["--dtype", dtype_of(context.dtype, context.device)]
    if context.max_model_len is not None:
        found += [length_option, str(context.max_model_len)]
    return found


def _more(settings: Mapping[str, JsonValue]) -> list[str]:
    text = str(settings["args"] or "")
    try:
        return shlex.split(text)
    except ValueError as error:
        raise CbbenchError(f"args={text!r} cannot be read: {error}") from None


def _check_words(command: Sequence[str], variable: str | None, key: str | None) -> None:
    """Raises `CbbenchError` for a command that shows the key, or that wants one and has none."""
    if key and any(key in word for word in command):
        raise CbbenchError(
            f"the server's command shows the key that {variable} holds, and it is written into "
            "the results; put {key} in its place"
        )
    if key is None and any("{key}" in word for word in command):
        raise CbbenchError(
            "the server's command says {key}, but no api_key_env names a variable that holds one"
        )


def _without_folders(word: str) -> str:
    """Result files can be given to anyone, so of a path the name stays."""
    return Path(word).name if word.startswith(("/", "~", "./", "../")) else word
