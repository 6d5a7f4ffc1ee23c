"""The workers of one run, as the master deals with them: prepared, timed, and given up when gone.

Knows no locust: who has users, who is alive and how to reach them is handed in. Waits only in
`Waiting`, which a message or the run's stop cuts short.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Final, Protocol

from engines.api import CbbenchError
from harness.locust_load.clocks import ClockOffset, RoundTrip, measure
from harness.locust_load.layout import Layout
from harness.locust_load.messages import Begin, Begun, Ping, Pong, Prepare, Prepared, ToWorker

PREPARED_WITHIN_S: Final = 300.0
_USERS_WITHIN_S: Final = 30.0  # a busy worker tells of its users late
_PONG_WITHIN_S: Final = 2.0
_BEGUN_WITHIN_S: Final = 1.0
_PINGS: Final = 8
_LOST_AFTER_S: Final = 3.0
_LOOK_EVERY_S: Final = 0.25


class Wires(Protocol):
    """The workers, by id. `workers` are those that have users.

    `is_local`: the only worker is this process. `are_ours`: the workers are its children.
    """

    is_local: bool
    are_ours: bool

    def send(self, worker: str, message: ToWorker) -> None: ...

    def has_all_users(self) -> bool: ...

    def workers(self) -> list[str]: ...

    def is_alive(self, worker: str) -> bool: ...


class Waiting:
    """One thread waits for what others tell it, until the run is stopped."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.stopping = False

    def tell(self) -> None:
        with self.changed:
            self.changed.notify_all()

    def stop(self) -> bool:
        """Whether this was the first time."""
        with self.changed:
            first, self.stopping = not self.stopping, True
            self.changed.notify_all()
        return first

    def until(self, is_so: Callable[[], bool], patience_s: float | None = None) -> bool:
        """Whether it became so in time and before the run was stopped."""
        return self._wait(is_so, patience_s, even_when_stopping=False) and not self.stopping

    def out(self, is_so: Callable[[], bool], patience_s: float) -> None:
        """The same while the run is being stopped."""
        self._wait(is_so, patience_s, even_when_stopping=True)

    def _wait(
        self, is_so: Callable[[], bool], patience_s: float | None, *, even_when_stopping: bool
    ) -> bool:
        until_s = None if patience_s is None else time.perf_counter() + patience_s
        with self.changed:
            while even_when_stopping or not self.stopping:
                if is_so():
                    return True
                if until_s is not None and time.perf_counter() >= until_s:
                    return False
                self.changed.wait(_LOOK_EVERY_S)
        return False


class Crew:
    """`members` are fixed once for the run; who comes later has no part in it."""

    def __init__(self, run: str, wires: Wires, waiting: Waiting) -> None:
        self._run = run
        self._wires = wires
        self._waiting = waiting
        self._prepared: dict[str, Prepared] = {}
        self._pongs: dict[str, RoundTrip] = {}
        self._to_begin: dict[str, tuple[Begin, float]] = {}
        self._away_since_s: dict[str, float] = {}
        self.members: list[str] = []
        self.clock_uncertainty_s: float | None = None

    @property
    def warmups(self) -> int:
        return sum(found.warmups for found in self._prepared.values())

    @property
    def are_ours(self) -> bool:
        return self._wires.are_ours

    def send(self, worker: str, message: ToWorker) -> None:
        self._wires.send(worker, message)

    def is_alive(self, worker: str) -> bool:
        return self._wires.is_alive(worker)

    def hear(self, worker: str, message: Prepared | Pong | Begun) -> None:
        match message:
            case Prepared():
                self._prepared[worker] = message
            case Pong(_, sent_s, answered_s):
                self._pongs[worker] = RoundTrip(sent_s, answered_s, time.perf_counter())
            case Begun():
                self._to_begin.pop(worker, None)

    def prepare(self, layout: Layout) -> None:
        """Every worker with users stands ready with the same requests, unless the run is stopped.

        Raises `CbbenchError` when one does not.
        """
        self._waiting.until(self._wires.has_all_users, _USERS_WITHIN_S)
        self.members = self._wires.workers()
        if not self.members:
            raise CbbenchError(
                "no load worker with a user is there; start one, and give --users to go round"
            )
        for place, worker in enumerate(self.members):
            self.send(worker, self._order(layout, place))
        if self._waiting.until(self._all_prepared, PREPARED_WITHIN_S) or not self._is_stopped:
            for worker in self.members:
                self._check(worker, layout.plan.workload.hash)

    def clock_offsets(self) -> Mapping[str, ClockOffset]:
        """How far each worker's clock is ahead. Raises `CbbenchError` for one that is silent."""
        found = {worker: self._clock_offset(worker) for worker in self.members}
        if not self._wires.is_local:
            self.clock_uncertainty_s = max(offset.uncertainty_s for offset in found.values())
        return found

    def begin(self, t0_s: float, offsets: Mapping[str, ClockOffset]) -> None:
        """Tells every worker, each on its own clock; see `tell_again`."""
        for worker, offset in offsets.items():
            self._tell_to_begin(worker, Begin(self._run, t0_s + offset.ahead_s))

    def tell_again(self) -> None:
        """To begin, those who have not answered: it may have been lost on a broken connection."""
        now_s = time.perf_counter()
        for worker, (message, sent_s) in list(self._to_begin.items()):
            if now_s - sent_s > _BEGUN_WITHIN_S:
                self._tell_to_begin(worker, message)

    def gone(self, worker: str) -> bool:
        """Whether a worker has been away for so long that it is not waited for any more."""
        if self.is_alive(worker):
            self._away_since_s.pop(worker, None)
            return False
        now_s = time.perf_counter()
        return now_s - self._away_since_s.setdefault(worker, now_s) > _LOST_AFTER_S

    @property
    def _is_stopped(self) -> bool:
        return self._waiting.stopping

    def _tell_to_begin(self, worker: str, message: Begin) -> None:
        self._to_begin[worker] = message, time.perf_counter()
        self.send(worker, message)

    def _order(self, layout: Layout, place: int) -> Prepare:
        return Prepare(
            run=self._run,
            worker=place,
            workers=len(self.members),
            vocab_size=layout.limits.vocab_size,
            max_model_len=layout.limits.max_model_len,
            special_token_ids=layout.limits.special_token_ids,
            prompt_form=layout.prompt_form,
        )

    def _all_prepared(self) -> bool:
        """Also when one is gone: then there is nothing to wait for."""
        missing = [worker for worker in self.members if worker not in self._prepared]
        return not missing or not all(map(self.is_alive, missing))

    def _check(self, worker: str, workload_hash: str) -> None:
        found = self._prepared.get(worker)
        if found is None:
            raise self._lost_early(worker)
        if found.error:
            raise CbbenchError(f"load worker {worker}: {found.error}")
        if found.workload_hash != workload_hash:
            raise CbbenchError(
                f"load worker {worker} drew another workload ({found.workload_hash[:12]}, "
                f"expected {workload_hash[:12]}); give it the same cbbench and the same files"
            )

    def _clock_offset(self, worker: str) -> ClockOffset:
        if self._wires.is_local:
            return ClockOffset()
        trips = []
        for _ in range(_PINGS):
            self._pongs.pop(worker, None)
            self.send(worker, Ping(self._run, time.perf_counter()))
            if self._waiting.until(lambda: worker in self._pongs, _PONG_WITHIN_S):
                trips.append(self._pongs[worker])
        offset = measure(trips)
        if offset is None and not self._is_stopped:
            raise self._lost_early(worker)
        return offset or ClockOffset()

    def _lost_early(self, worker: str) -> CbbenchError:
        return CbbenchError(f"load worker {worker} was lost before the run began; start it again")
