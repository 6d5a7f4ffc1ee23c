"""A schedule split over several client processes: the player for rates that one core cannot send.

The engine's process pulls from the source a little ahead of time, deals the requests out in turn,
and hands on what the processes hear. They send at the scheduled instants by themselves.
"""

from __future__ import annotations

import math
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from typing import Final, cast

from engines.api import (
    Blocked,
    CbbenchError,
    Clock,
    End,
    Finish,
    Request,
    RequestId,
    RequestSource,
    Sink,
    StepEvents,
)
from engines.remote.client import Target
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

AHEAD_S: Final = 0.05
_LOOK_EVERY_S: Final = 0.05
_CLOSE_WITHIN_S: Final = 2.0


class ClientProcesses:
    """A `Player` of `count` processes, which live until `close`."""

    def __init__(self, target: Target, count: int) -> None:
        self._limit = target.limit
        self._stopping = threading.Event()
        self._home: dict[RequestId, int] = {}
        self.retried = 0
        self._processes = [_Process() for _ in range(count)]
        try:
            self._ask_all([Aim(target)] * count)  # each may hold all that are in flight
        except BaseException:
            self.close()
            raise

    def prepare(self, requests: Sequence[Request]) -> None:
        """Each process gets every n-th request in the order of the schedule."""
        ordered = sorted(requests, key=lambda request: request.scheduled_s)
        count = len(self._processes)
        self._home = {request.request_id: i % count for i, request in enumerate(ordered)}
        self._ask_all([Prepare(tuple(ordered[i::count])) for i in range(count)])

    def warm(self, connections: int) -> None:
        each = math.ceil(connections / len(self._processes))
        self._ask_all([Warm(each)] * len(self._processes))

    def run(self, source: RequestSource, sink: Sink, clock: Clock) -> None:
        try:
            if not self._stopping.is_set():
                dealing = _Dealing(self._processes, self._home, self._limit, sink)
                self.retried = dealing.run(source, clock, self._stopping)
        finally:
            self._stopping.clear()

    def stop(self) -> None:
        self._stopping.set()

    def close(self) -> None:
        for process in self._processes:
            process.close()

    def _ask_all(self, commands: Sequence[Command]) -> None:
        """One command each, side by side."""
        for process, command in zip(self._processes, commands, strict=True):
            process.send(command)
        troubles: list[Exception] = []
        for process in self._processes:  # each is heard, or its answer would be the next one's
            try:
                process.expect_done()
            except (RuntimeError, CbbenchError) as error:
                troubles.append(error)
        if troubles:
            raise troubles[0]


class _Process:
    """One child and the pipe to it. In this process's session, so that it ends with it."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            command = [sys.executable, "-m", "engines.remote.client_process", str(theirs.fileno())]
            self._child = subprocess.Popen(
                command, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL
            )
        self.connection = Connection(ours.detach())

    def send(self, command: Command) -> None:
        """Never raises for a child that is gone: its death is told by `receive`."""
        with suppress(OSError):
            self.connection.send(command)

    def receive(self) -> Answer:
        """Raises what the child ran into; `RuntimeError` when it is gone."""
        try:
            answer = cast(Answer, self.connection.recv())
        except (EOFError, OSError):
            raise RuntimeError("a client process has ended by itself") from None
        if isinstance(answer, Trouble):
            raise CbbenchError(answer.error) if answer.mistake else RuntimeError(answer.error)
        return answer

    def expect_done(self) -> None:
        answer = self.receive()
        assert isinstance(answer, Done), answer

    def close(self) -> None:
        """The end of the pipe ends the child; one that does not listen is killed."""
        self.connection.close()
        try:
            self._child.wait(_CLOSE_WITHIN_S)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()


class _Dealing:
    """One run: who got which request, and who has not finished yet."""

    def __init__(
        self,
        processes: Sequence[_Process],
        home: dict[RequestId, int],
        limit: int,
        sink: Sink,
    ) -> None:
        self._processes = processes
        self._home = home
        self._limit = limit
        self._sink = sink
        self._in_flight: dict[RequestId, int] = {}
        self._turn = 0
        self._all_dealt = False
        self._running = dict(enumerate(processes))
        self._retried = 0

    def run(self, source: RequestSource, clock: Clock, stopping: threading.Event) -> int:
        """How often a request was sent again."""
        self._tell_all(Run(time.perf_counter() - clock.now()))
        told_to_stop = False
        try:
            while self._running:
                if stopping.is_set() and not told_to_stop:
                    told_to_stop = True
                    self._tell_all(Stop())
                pause_s = _LOOK_EVERY_S
                if not told_to_stop and not self._all_dealt:
                    pause_s = self._deal(source, clock)
                self._listen(pause_s)
        finally:
            self._silence()
        self._drop_rest(clock)
        return self._retried

    def _deal(self, source: RequestSource, clock: Clock) -> float:
        """Hands out what is due soon; how long nothing more will be."""
        for request_id in source.cancelled():
            if request_id in self._in_flight:
                self._processes[self._in_flight[request_id]].send(Leave((request_id,)))
        due, room = source.next_due(), self._limit - len(self._in_flight)
        if isinstance(due, End):
            self._all_dealt = True
            self._tell_all(NoMore())
            return 0.0
        if isinstance(due, Blocked) or room < 1:
            return _LOOK_EVERY_S
        ahead_s = clock.now() + AHEAD_S
        if due > ahead_s:
            return min(due - ahead_s, _LOOK_EVERY_S)
        self._hand_out(source.take(ahead_s, room))
        return 0.0

    def _hand_out(self, requests: Sequence[Request]) -> None:
        count = len(self._processes)
        known: list[list[tuple[RequestId, float]]] = [[] for _ in range(count)]
        others: list[list[Request]] = [[] for _ in range(count)]
        for request in requests:
            home = self._home.get(request.request_id)
            if home is None:
                home, self._turn = self._turn, (self._turn + 1) % count
                others[home].append(request)
            else:
                known[home].append((request.request_id, request.scheduled_s))
            self._in_flight[request.request_id] = home
        for index, process in enumerate(self._processes):
            if known[index] or others[index]:
                process.send(HandOut(tuple(known[index]), tuple(others[index])))

    def _listen(self, pause_s: float) -> None:
        by_connection = {process.connection: i for i, process in self._running.items()}
        for ready in wait(list(by_connection), pause_s):
            index = by_connection[cast(Connection, ready)]
            try:
                answer = self._processes[index].receive()
            except (RuntimeError, CbbenchError):
                del self._running[index]  # that was its last word
                raise
            self._hear(index, answer)

    def _hear(self, index: int, answer: Answer) -> None:
        if isinstance(answer, Done):
            self._retried += answer.retried
            del self._running[index]
        elif isinstance(answer, Heard):
            for finish in answer.finished:
                self._in_flight.pop(finish.request_id, None)
            self._sink.emit(
                StepEvents(answer.time_s, answer.request_ids, answer.token_ids, answer.finished)
            )

    def _silence(self) -> None:
        """After an error: the others end too, and what they still say is heard by nobody."""
        self._tell_all(Stop())
        for process in self._running.values():
            with suppress(RuntimeError, CbbenchError):
                while not isinstance(process.receive(), Done):
                    pass

    def _drop_rest(self, clock: Clock) -> None:
        """Requests that were dealt out to processes that stopped before they began them."""
        rest = [Finish(name, "cancelled", None, "the run was stopped") for name in self._in_flight]
        if rest:
            self._sink.emit(StepEvents(clock.now(), finished=rest))

    def _tell_all(self, command: Command) -> None:
        for process in self._running.values():
            process.send(command)
