"""The requests in flight: hands them to the engine, and its events to whoever waits for them.

Belongs to the event loop's thread. It keeps the count that admission goes by and tells the
metrics; it knows no HTTP and no text.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from engines.api import Clock, Finish, Request, RequestId, StepEvents
from harness.server.mailbox import Mailbox
from harness.server.metrics import ServerMetrics
from harness.server.ticket import End, Ticket


class Hand(Protocol):
    """Takes work to the engine; see `EngineProcess.send`."""

    def __call__(self, submit: tuple[Request, ...], cancel: tuple[RequestId, ...]) -> None: ...


class Desk:
    """See the module. `later` runs a function once the current turn of the event loop is over."""

    def __init__(
        self,
        hand: Hand,
        clock: Clock,
        metrics: ServerMetrics,
        later: Callable[[Callable[[], None]], object],
    ) -> None:
        self._hand = hand
        self._clock = clock
        self._metrics = metrics
        self._later = later
        self._tickets: dict[RequestId, Ticket] = {}
        self._submit: list[Request] = []
        self._cancel: list[RequestId] = []
        self._is_flushing = False
        self._heard_s = clock.now()

    @property
    def in_flight(self) -> int:
        """Prompts that are waiting or running."""
        return len(self._tickets)

    @property
    def silence_s(self) -> float:
        """How long the engine has said nothing although requests are in flight."""
        return self._clock.now() - self._heard_s if self._tickets else 0.0

    def submit(
        self, requests: Sequence[Request], mailbox: Mailbox, on_overflow: Callable[[], None]
    ) -> list[Ticket]:
        """Sends requests to the engine, whose events go to `mailbox`, each under its place."""
        now_s = self._clock.now()
        if not self._tickets:
            self._heard_s = now_s
        tickets = [
            Ticket(request, place, mailbox, on_overflow, now_s)
            for place, request in enumerate(requests)
        ]
        self._tickets |= {ticket.request.request_id: ticket for ticket in tickets}
        self._submit += requests
        self._metrics.in_flight(self.in_flight)
        self._flush_later()
        return tickets

    def end(self, ticket: Ticket, end: End) -> None:
        """Ends a prompt before the engine does: its client left, or a stop string came."""
        if self._forget(ticket, end):
            self._cancel.append(ticket.request.request_id)
            self._flush_later()

    def dispatch(self, events: StepEvents) -> None:
        """One step of the engine."""
        now_s = self._heard_s = self._clock.now()
        ends = {finish.request_id: finish for finish in events.finished}
        self._metrics.step(events)
        for name, token_ids in zip(events.request_ids, events.token_ids, strict=True):
            ticket = self._tickets.get(name)
            if ticket is not None:
                self._deliver(ticket, list(token_ids), ends.pop(name, None), now_s)
        for name, finish in ends.items():
            ticket = self._tickets.get(name)
            if ticket is not None:
                self._deliver(ticket, [], finish, now_s)
        self._metrics.in_flight(self.in_flight)

    def fail_all(self, reason: str) -> None:
        """Everybody ends with an error; nothing is sent to the engine, which is gone."""
        self._submit.clear()
        self._cancel.clear()
        for ticket in list(self._tickets.values()):
            finish = Finish(ticket.request.request_id, "failed", reason=reason)
            self._deliver(ticket, [], finish, self._clock.now())

    def _deliver(
        self, ticket: Ticket, token_ids: list[int], finish: Finish | None, now_s: float
    ) -> None:
        if token_ids:
            if ticket.first_s is None:
                ticket.first_s = now_s
                self._metrics.first_token(ticket)
            ticket.num_tokens += len(token_ids)
            ticket.last_s = now_s
            self._metrics.tokens(len(token_ids))
        if finish is not None:
            self._forget(ticket, _end_of(finish))
        if not ticket.mailbox.put(ticket.place, token_ids, finish):
            ticket.on_overflow()

    def _forget(self, ticket: Ticket, end: End) -> bool:
        """Whether it was still in flight."""
        if self._tickets.pop(ticket.request.request_id, None) is None:
            return False
        self._metrics.ended(ticket, end)
        self._metrics.in_flight(self.in_flight)
        return True

    def _flush_later(self) -> None:
        if not self._is_flushing:
            self._is_flushing = True
            self._later(self._flush)

    def _flush(self) -> None:
        """One message for all that came in this turn of the event loop."""
        self._is_flushing = False
        submit, self._submit = tuple(self._submit), []
        cancel, self._cancel = tuple(self._cancel), []
        if submit or cancel:
            self._hand(submit, cancel)


def _end_of(finish: Finish) -> End:
    if finish.status == "ok":
        return finish.finish_reason or "length"
    return "abort" if finish.status == "cancelled" else "error"
