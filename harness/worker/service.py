"""One engine in its own process: takes commands from the parent's pipe and answers them.

The main thread runs the engine; a reader thread takes what comes meanwhile. When the pipe ends,
the parent is gone, however it went, and the worker goes at once with all that it started.
"""

from __future__ import annotations

import os
import sys
import threading
import traceback
from collections.abc import Callable
from dataclasses import replace
from multiprocessing.connection import Connection
from queue import SimpleQueue

from engines.api import CbbenchError, Engine, EngineInfo, Outbound
from engines.registry import BuildContext, EngineSpec, build_engine, installed_engines
from harness.places import plain_settings, without_folders, without_places
from harness.plans import PlanTap
from harness.records import CellKey
from harness.worker.cell import CellRun
from harness.worker.errors import error_text
from harness.worker.protocol import (
    Answer,
    Build,
    Built,
    Close,
    Command,
    Encode,
    Encoded,
    Failed,
    Judge,
    Judged,
    Progress,
    RunCell,
    Stop,
    is_disk_full,
)


class Worker:
    """Serves one pipe until `Close`, or until the parent is gone."""

    def __init__(
        self, connection: Connection, parent_pid: int, parent_gone: Callable[[], None]
    ) -> None:
        self._connection = connection
        self._parent_pid = parent_pid
        self._parent_gone = parent_gone
        self._commands: SimpleQueue[Command] = SimpleQueue()
        self._sending = threading.Lock()
        self._stop_key: CellKey | None = None
        self._engine: Engine | None = None
        self._spec: EngineSpec | None = None
        self._info: EngineInfo | None = None
        self._model = ""
        self._tap = PlanTap()

    def serve(self) -> None:
        threading.Thread(target=self._read, name="reader", daemon=True).start()
        while not isinstance(command := self._commands.get(), Close):
            self._send(self._answer(command))
        if self._engine is not None:
            self._engine.close()

    def _read(self) -> None:
        while True:
            try:
                command = self._connection.recv()
            except (EOFError, OSError):
                self._parent_gone()
                return
            except Exception:  # a command that cannot be read; what follows it cannot be trusted
                traceback.print_exc(file=sys.stderr)
                self._parent_gone()
                return
            if isinstance(command, Stop):
                self._stop_key = command.key
            else:
                self._commands.put(command)

    def _answer(self, command: Command) -> Answer:
        """The worker's edge: every exception becomes an answer, its traceback goes to the log."""
        try:
            return self._do(command)
        except CbbenchError as error:
            return Failed("disk" if is_disk_full(error.__cause__) else "mistake", str(error))
        except Exception as error:
            traceback.print_exc(file=sys.stderr)
            return Failed("disk" if is_disk_full(error) else "crash", error_text(error))

    def _do(self, command: Command) -> Answer:
        match command:
            case Build(spec, context):
                return self._build(spec, context)
            case Encode(texts, chat):
                from engines.models.text import encode_prompts  # loads transformers

                return Encoded(encode_prompts(self._model, texts, chat=chat))
            case Judge(context, questions):
                from engines.models.teacher import judge  # loads torch

                return Judged(judge(context, questions))
            case RunCell():
                return self._run(command)
            case _:
                raise AssertionError(f"not a command: {command!r}")

    def _build(self, spec: EngineSpec, context: BuildContext) -> Built:
        context = replace(context, observer=self._tap)
        self._engine = build_engine(spec, installed_engines()[spec.name], context)
        info = self._engine.describe()
        self._info = replace(
            info,
            settings=plain_settings(info.settings),
            notes=tuple(without_places(note) for note in info.notes),
        )
        self._spec = spec
        self._model = context.model
        engine = self._engine
        return Built(self._info, engine.closing_s() if isinstance(engine, Outbound) else 0.0)

    def _run(self, command: RunCell) -> Answer:
        assert self._engine is not None
        assert self._spec is not None
        assert self._info is not None
        return CellRun(
            self._engine,
            command,
            spec=without_folders(self._spec.text),
            info=self._info,
            tap=self._tap,
            parent_pid=self._parent_pid,
            stopped=lambda: self._stop_key == command.key,
            report=self._send,
        ).run()

    def _send(self, message: Answer | Progress) -> None:
        try:
            with self._sending:
                self._connection.send(message)
        except OSError:
            self._parent_gone()


def parent_is_gone() -> None:
    """Ends this process and everything in its session, a server that it started included."""
    os.killpg(os.getpgrp(), 9)
