"""One of several client processes: takes its share of a schedule from a pipe, tells what it hears.

Started by `client_processes` and by nothing else. When the pipe ends, so does the process.
"""

from __future__ import annotations

import os
import sys
import threading
import traceback
from multiprocessing.connection import Connection
from queue import SimpleQueue
from typing import cast

from engines.api import CbbenchError, Request, StepEvents
from engines.clock import WallClock
from engines.remote.client import Client
from engines.remote.client_messages import (
    Aim,
    Answer,
    Command,
    Done,
    HandOut,
    Heard,
    Leave,
    NoMore,
    Prepare,
    Run,
    Stop,
    Trouble,
    Warm,
)
from engines.remote.fed_source import FedSource


class ClientProcess:
    """Serves one pipe. The main thread plays; a reader thread takes what comes meanwhile."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._commands: SimpleQueue[Command] = SimpleQueue()
        self._clock = WallClock()
        self._source = FedSource(self._clock)
        self._prepared: dict[str, Request] = {}
        self._client: Client | None = None

    def serve(self) -> None:
        threading.Thread(target=self._read, name="reader", daemon=True).start()
        while True:
            command = self._commands.get()
            try:
                answer: Answer = self._do(command)
            except CbbenchError as error:
                answer = Trouble(str(error), mistake=True)
            except Exception as error:  # the process's edge: told to the engine, which raises it
                traceback.print_exc(file=sys.stderr)
                answer = Trouble(f"{type(error).__name__}: {error}", mistake=False)
            self._connection.send(answer)

    def _do(self, command: Command) -> Answer:
        if isinstance(command, Aim):
            self._client = Client(command.target)
            return Done()
        client = cast(Client, self._client)
        match command:
            case Prepare(requests):
                self._prepared = {request.request_id: request for request in requests}
                client.prepare(requests)
            case Warm(connections):
                client.warm(connections)
            case Run():
                client.run(self._source, _Teller(self._connection), self._clock)
                return Done(client.retried)
        return Done()

    def _read(self) -> None:
        while True:
            try:
                command: Command = self._connection.recv()
            except (EOFError, OSError):
                os._exit(0)  # the engine is gone, however it went
            self._note(command)

    def _note(self, command: Command) -> None:
        """What concerns a run under way is done here, the rest waits for the main thread."""
        client = self._client
        match command:
            case HandOut(known, others):
                self._source.feed([*(self._at(*pair) for pair in known), *others])
            case Leave(request_ids):
                self._source.cancel(request_ids)
            case NoMore():
                self._source.finish()
            case Stop():
                if client is not None:
                    client.stop()
            case Run(t0_s):
                self._clock.restart(t0_s)
                self._source = FedSource(self._clock)
                if client is not None:
                    client.forget_stop()
                self._commands.put(command)
            case _:
                self._commands.put(command)
        if client is not None:
            client.wake()

    def _at(self, request_id: str, scheduled_s: float) -> Request:
        """Not `dataclasses.replace`, which would cost more than the sending."""
        known = self._prepared[request_id]
        if known.scheduled_s == scheduled_s:
            return known
        return Request(
            known.request_id,
            known.prompt_token_ids,
            known.max_tokens,
            scheduled_s,
            known.sampling,
            known.ignore_eos,
            known.stop_token_ids,
            known.priority,
            known.request_class,
            known.session,
        )


class _Teller:
    """A sink that sends on what it is given."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def emit(self, events: StepEvents) -> None:
        self._connection.send(
            Heard(events.time_s, events.request_ids, events.token_ids, events.finished)
        )


def main() -> None:
    ClientProcess(Connection(int(sys.argv[1]))).serve()


if __name__ == "__main__":
    main()
