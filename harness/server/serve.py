"""Runs the server: opens the port, starts the engine, serves, drains on a signal, ends.

The first SIGTERM or SIGINT lets what is in flight finish; the second ends at once. An engine that
dies ends the server, with an exit code that says so.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Final, TextIO

import uvicorn

from engines.api import CbbenchError
from engines.clock import WallClock
from engines.registry import BuildContext, EngineSpec
from engines.remote.open_files import allow_open_files
from harness.server.app import make_app
from harness.server.connections import CuttableProtocol
from harness.server.desk import Desk
from harness.server.engine_process import EngineProcess
from harness.server.messages import Up
from harness.server.metrics import ServerMetrics
from harness.server.service import Limits, Phase, Service

ENGINE_LOST: Final = 1
_MOST_OPEN_FILES: Final = 65_536
_KEEP_ALIVE_S: Final = 75
_CLOSE_WITHIN_S: Final = 5
_LOOK_EVERY_S: Final = 0.05
_LOCAL: Final = ("127.0.0.1", "::1", "localhost")


@dataclass(frozen=True, slots=True)
class ServeConfig:
    """What a server does. `port` of 0: any that is free."""

    engine: EngineSpec
    context: BuildContext
    model_name: str
    host: str
    port: int
    api_key: str | None
    limits: Limits


def serve(config: ServeConfig, stdout: TextIO, stderr: TextIO) -> int:
    """The exit code. Raises `CbbenchError` for a port or an engine that cannot be had."""
    allow_open_files(_MOST_OPEN_FILES)
    listener = _listen(config.host, config.port)
    return asyncio.run(_Server(config, listener, stdout, stderr).run())


class _QuietServer(uvicorn.Server):
    """Signals are ours: uvicorn would refuse new connections while requests are in flight."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class _Server:
    def __init__(
        self, config: ServeConfig, listener: socket.socket, stdout: TextIO, stderr: TextIO
    ) -> None:
        self._config = config
        self._listener = listener
        self._stdout = stdout
        self._stderr = stderr
        self._clock = WallClock()
        self._changed = asyncio.Event()
        self._signal: signal.Signals | None = None
        self._defect: Exception | None = None

    async def run(self) -> int:
        loop = asyncio.get_running_loop()
        config = self._config
        self._engine = EngineProcess(
            config.engine,
            config.context,
            lambda message: _call(loop, lambda: self._receive(message)),
        )
        metrics = ServerMetrics(config.model_name)
        desk = Desk(self._engine.send, self._clock, metrics, loop.call_soon)
        self._service = Service(
            config.model_name,
            desk,
            metrics,
            config.limits,
            secrets.randbits,
            self._changed.set,
        )
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._on_signal, number)
        http = _QuietServer(self._http_config())
        self._say(f"loading {config.engine.text} with {config.model_name}")
        serving = asyncio.create_task(http.serve([self._listener]))
        serving.add_done_callback(lambda _: self._changed.set())
        try:
            return await self._attend(serving)
        finally:
            http.should_exit = True
            await asyncio.wait([serving])
            self._engine.close()
            patience_s = 0.0 if self._service.standing is None else _CLOSE_WITHIN_S
            await asyncio.to_thread(self._engine.end, patience_s)

    async def _attend(self, serving: asyncio.Task[None]) -> int:
        """From loading to the end; the exit code."""
        service = self._service
        await self._while("loading", serving)
        if service.phase == "ready":
            self._announce()
        await self._while("ready", serving)
        while service.phase == "draining" and self._defect is None and not service.is_drained():
            await asyncio.sleep(_LOOK_EVERY_S)
        if self._defect is not None:
            raise self._defect
        if serving.done():
            serving.result()
            raise RuntimeError("the HTTP server has ended by itself")
        if service.not_built is not None:
            return self._refused()
        if service.how_it_ended:
            print(f"error: the engine's process {service.how_it_ended}", file=self._stderr)
            return ENGINE_LOST
        return 0 if self._signal in (None, signal.SIGTERM) else 128 + signal.SIGINT

    async def _while(self, phase: Phase, serving: asyncio.Task[None]) -> None:
        """Until the phase is another, HTTP has ended or a message could not be taken."""
        while self._service.phase == phase and not serving.done() and self._defect is None:
            await self._changed.wait()
            self._changed.clear()

    def _receive(self, message: Up) -> None:
        """What goes wrong here would be swallowed by the event loop, and everybody would wait."""
        try:
            self._service.receive(message)
        except Exception as error:
            self._defect = self._defect or error
            self._changed.set()

    def _refused(self) -> int:
        refusal = self._service.not_built
        assert refusal is not None
        if refusal.kind == "mistake":
            raise CbbenchError(refusal.error)
        print(f"error: the engine cannot be built: {refusal.error}", file=self._stderr)
        return ENGINE_LOST

    def _announce(self) -> None:
        host, port = self._listener.getsockname()[:2]
        shown = f"[{host}]" if ":" in host else host
        self._say(f"ready at http://{shown}:{port} (process {os.getpid()})")
        if self._config.api_key is None and self._config.host not in _LOCAL:
            self._say(f"anybody who reaches {host} may use it; see --api-key-env")

    def _say(self, text: str) -> None:
        print(f"cbbench serve: {text}", file=self._stdout, flush=True)

    def _on_signal(self, number: signal.Signals) -> None:
        if self._signal is not None:
            self._engine.end(0.0)
            os._exit(128 + number)
        self._signal = number
        self._say(f"{number.name}: finishing {self._service.desk.in_flight} requests")
        self._service.drain()

    def _http_config(self) -> uvicorn.Config:
        app = make_app(self._service, self._config.api_key)
        return uvicorn.Config(
            app,
            http=CuttableProtocol,
            ws="none",
            lifespan="off",
            log_config=None,
            log_level="warning",
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=_KEEP_ALIVE_S,
            timeout_graceful_shutdown=_CLOSE_WITHIN_S,
        )


def _call(loop: asyncio.AbstractEventLoop, function: Callable[[], None]) -> None:
    """From another thread; a loop that is closed has nobody left to tell."""
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(function)


def _listen(host: str, port: int) -> socket.socket:
    """Before the model is loaded, so that a port in use is known at once.

    The protocol is named because asyncio sends small writes at once only where it is.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(2048)
    except OSError as error:
        listener.close()
        raise CbbenchError(
            f"cannot listen on {host} port {port}: {error.strerror or error}; "
            "give another --host or --port"
        ) from error
    return listener
