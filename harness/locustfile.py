"""Load on an OpenAI-compatible server with locust: `locust -f harness/locustfile.py --host URL`.

The only module that imports locust, which patches its process with gevent and so never shares one
with torch. Ties locust's options, users, events and messages to `harness.locust_load`, which does
the work; decides nothing itself.
"""

from __future__ import annotations

import functools
import logging
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any, Final

# While locust imports this file, its folder stands first in the path, where our modules would hide
# those of the standard library that have the same name. The folder above it belongs there.
_HERE: Final = Path(__file__).resolve().parent
sys.path[:] = [str(_HERE.parent) if Path(place) == _HERE else place for place in sys.path]

import gevent
import locust
from locust import User, argument_parser, log, task
from locust.exception import RPCError, StopUser
from locust.runners import STATE_MISSING, LocalRunner, MasterRunner, WorkerRunner

from engines.api import CbbenchError, Request
from harness.locust_load.closing import Outcome
from harness.locust_load.events import context_of, count_requests_once, events_of
from harness.locust_load.layout import lay_out
from harness.locust_load.load_run import LoadRun
from harness.locust_load.messages import (
    TO_MASTER,
    TO_WORKER,
    Message,
    ToMaster,
    ToWorker,
    from_wire,
    name_of,
    to_wire,
)
from harness.locust_load.options import ARGUMENTS, LoadOptions, read_load_options
from harness.locust_load.player import Row, Seat
from harness.locust_load.worker_side import WorkerSide

logger = logging.getLogger("cbbench")
_USAGE: Final = 2
_INTERRUPTED: Final = 130
_TERMINATED: Final = 143
_LOCAL: Final = "local"  # what locust calls the only worker of a run without others
_SPAWN_RATE: Final = 100.0  # a run begins when all users are there, and they cost nothing
_GRACE: Final = "5"  # seconds, for what is on its way when --run-time is over


def add_options(parser: Any, **_: Any) -> None:
    """cbbench's options, and defaults of locust's that fit them."""
    for argument in ARGUMENTS:
        shape: dict[str, Any] = {"metavar": argument.metavar}
        if argument.default is False:
            shape = {"action": "store_true"}
        parser.add_argument(
            argument.flag,
            default=argument.default,
            help=f"{argument.help}.",
            include_in_web_ui=argument.in_web_ui,
            **shape,
        )
    parser.set_defaults(spawn_rate=_SPAWN_RATE, stop_timeout=_GRACE)


def begin(environment: Any, runner: Any, **_: Any) -> None:
    """One node a process; its users and the other events find it in the environment."""
    environment.cbbench = Node(environment, runner)
    count_requests_once(environment.stats)
    build_the_parser_once()
    gevent.signal_handler(signal.SIGINT, interrupt)
    gevent.get_hub().loop.update_now()  # else locust's --run-time counts the imports too


def interrupt() -> None:
    """Ctrl-C for locust's main greenlet, which ends the test.

    Python's own handler would raise in whichever greenlet runs, and a thread's would keep it.
    """
    hub = gevent.get_hub()
    hub.loop.run_callback(hub.parent.throw, KeyboardInterrupt)


def build_the_parser_once() -> None:
    """locust builds its parser anew for every single option that a worker is told.

    On a busy machine that takes seconds, in which a worker is deaf and is given up as missing.
    """
    parser: Any = argument_parser
    parser.default_args_dict = functools.cache(parser.default_args_dict)


class CompletionUser(User):
    """One request at a time, for as long as the run has one for it."""

    seat: Seat | None = None

    @task
    def play(self) -> None:
        self.seat = self.environment.cbbench.worker.play(self.seat)
        if self.seat is None:
            raise StopUser


class Node:
    """One locust process: a worker's part, a master's part, or both."""

    def __init__(self, environment: Any, runner: Any) -> None:
        self._environment = environment
        self._runner = runner
        self._run: LoadRun | None = None
        self._ending = threading.Lock()
        self._fixed_code: int | None = None
        self.wires = RunnerWires(runner, environment.parsed_options)
        self.worker = WorkerSide(
            self._tell_master, self._read_options, lambda: int(runner.user_count), self._tell_locust
        )
        heard = environment.events
        heard.test_start.add_listener(self._test_starts)
        heard.test_stopping.add_listener(self._test_stops)
        heard.quitting.add_listener(self._quits)
        if isinstance(runner, LocalRunner | WorkerRunner):
            self._listen(TO_WORKER, lambda sender, message: self.worker.receive(message))
        if self.leads:
            heard.spawning_complete.add_listener(self._users_are_there)
            self._listen(TO_MASTER, self._hear_worker)
            if environment.parsed_options.headless:
                self._refuse_early()

    @property
    def leads(self) -> bool:
        return isinstance(self._runner, LocalRunner | MasterRunner)

    def _listen(self, kinds: Any, hear: Any) -> None:
        for kind in kinds:

            def listener(msg: Any, kind: Any = kind, **_: Any) -> None:
                hear(msg.node_id, from_wire(kind, msg.data))

            self._runner.register_message(name_of(kind), listener)

    def _hear_worker(self, sender: str, message: ToMaster) -> None:
        if self._run is not None:
            self._run.receive(sender, message)

    def _tell_master(self, message: ToMaster) -> None:
        self.wires.post(message, None)

    def _tell_locust(self, options: LoadOptions, request: Request, row: Row) -> None:
        for event in events_of(request, row, options.path):
            self._environment.events.request.fire(
                request_type=event.kind,
                name=event.name,
                response_time=event.response_ms,
                response_length=0,
                exception=event.error,
                context=context_of(request, row),
            )

    def _read_options(self) -> LoadOptions:
        """As they are now: the web page may have changed them since the start."""
        options = self._environment.parsed_options
        given = {argument.name: getattr(options, argument.name) for argument in ARGUMENTS}
        users = self._runner.target_user_count or options.num_users
        return read_load_options(given, self._environment.host, users)

    def _refuse_early(self) -> None:
        try:
            self._read_options()
        except CbbenchError as error:
            print(f"error: {error}", file=sys.stderr)
            sys.exit(_USAGE)

    def _test_starts(self, **_: Any) -> None:
        self.worker.reset()
        if not self.leads:
            return
        try:
            layout = lay_out(self._read_options(), locust.__version__)
        except CbbenchError as error:
            self._give_up(error)
            return
        self._fixed_code = None
        self._run = LoadRun(layout, self.wires, self._finish, self._give_up, locust.__version__)
        self._run.start()

    def _users_are_there(self, **_: Any) -> None:
        if self._run is not None:
            self._run.users_are_there()

    def _test_stops(self, **_: Any) -> None:
        self._end(self._environment.stop_timeout)

    def _end(self, grace_s: float) -> None:
        """Ends and closes the run at hand, if there is one; its workers are heard to the last."""
        with self._ending:
            if self._run is not None:
                self._run.stop(grace_s)
                self._close(self._run)
                self._run = None
        self.worker.end(0.0)

    def _close(self, run: LoadRun) -> None:
        try:
            outcome = run.close(sys.stdout.encoding or "utf-8")
        except CbbenchError as error:
            self._give_up(error)
            return
        if outcome is not None:
            self._show(outcome)

    def _show(self, outcome: Outcome) -> None:
        lines = list(outcome.lines)
        if self._fixed_code is None:
            self._environment.process_exit_code = outcome.code
            lines += [f"exit code {outcome.code}: {reason}" for reason in outcome.reasons]
        sys.stdout.write("\n" + "\n".join(lines) + "\n\n")
        sys.stdout.flush()
        logger.info(outcome.summary)  # the web page shows the log

    def _give_up(self, error: CbbenchError) -> None:
        """Told in one line; nothing that is found later changes the exit code."""
        logger.error("error: %s", error)
        self._fix_code(_USAGE)
        self._finish()

    def _fix_code(self, code: int) -> None:
        self._fixed_code = self._environment.process_exit_code = code

    def _finish(self) -> None:
        """Ends the test from outside the greenlets that the end stops."""
        threading.Thread(target=self._stop_locust, daemon=True).start()

    def _stop_locust(self) -> None:
        options = self._environment.parsed_options
        if options.headless:
            self._runner.quit()
            return
        self._runner.stop()
        if options.autostart and options.autoquit != -1:
            time.sleep(options.autoquit)
            self._runner.quit()
            self._environment.web_ui.stop()

    def _quits(self, **_: Any) -> None:
        """Also when the process was told to go, with a run at hand that nobody has stopped."""
        if self._run is not None:
            by_hand = threading.current_thread() is threading.main_thread()
            self._fix_code(_INTERRUPTED if by_hand else _TERMINATED)
        self._end(0.0)
        if isinstance(self._runner, WorkerRunner) and not log.unhandled_greenlet_exception:
            self._environment.process_exit_code = 0  # what became of the requests the master tells


class RunnerWires:
    """locust's own channel. What cannot be sent is logged; reports are sent again anyway."""

    def __init__(self, runner: Any, options: Any) -> None:
        self._runner = runner
        self.is_local = isinstance(runner, LocalRunner)
        self.are_ours = self.is_local or bool(options.processes)

    def send(self, worker: str, message: ToWorker) -> None:
        self.post(message, worker)

    def post(self, message: Message, worker: str | None) -> None:
        try:
            self._runner.send_message(name_of(type(message)), to_wire(message), worker)
        except RPCError as error:
            logger.warning("a message to another locust process was not sent: %s", error)

    def has_all_users(self) -> bool:
        return self.is_local or self._runner.user_count >= self._runner.target_user_count

    def workers(self) -> list[str]:
        """In the order in which they came."""
        if self.is_local:
            return [_LOCAL]
        nodes = [node for node in self._runner.clients.all if node.user_count]
        nodes.sort(key=lambda node: int(self._runner.get_worker_index(node.id)))
        return [str(node.id) for node in nodes if node.state != STATE_MISSING]

    def is_alive(self, worker: str) -> bool:
        if self.is_local:
            return True
        node = self._runner.clients.get(worker)
        return node is not None and node.state != STATE_MISSING


_hooks: Any = locust.events  # its own methods have no types
_hooks.init_command_line_parser.add_listener(add_options)
_hooks.init.add_listener(begin)
