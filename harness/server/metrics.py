"""What `/metrics` shows: gauges, counters and histograms under names close to vLLM's.

It is told what happens and sums up; it asks nobody. Labels are bounded: one model, and words from
fixed lists.
"""

from __future__ import annotations

from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from engines.api import Finish, StepEvents, StepRow
from harness.server.ticket import ENDS, End, Ticket

CONTENT_TYPE: Final = CONTENT_TYPE_LATEST
_PREFIX: Final = "cbbench"
_BUCKETS_S: Final = tuple(step * 10.0**power for power in range(-3, 3) for step in (1.0, 2.0, 5.0))
_POSITIONS: Final = ("prompt", "output", "recomputed", "padding", "rejected_draft", "past_stop")
_PATHS: Final = (
    "/v1/completions",
    "/v1/chat/completions",
    "/v1/models",
    "/health",
    "/ready",
    "/metrics",
)


class ServerMetrics:
    """One server's, in a registry of its own."""

    def __init__(self, model_name: str) -> None:
        self._model = model_name
        self._registry = CollectorRegistry()
        self._num_running = 0
        self._running = self._gauge("num_requests_running", "requests that are being computed")
        self._waiting = self._gauge("num_requests_waiting", "requests that wait")
        self._kv_usage = self._gauge(
            "kv_cache_usage_perc", "share of the KV cache in use, 0 to 1 (0 where unknown)"
        )
        self._preemptions = self._counter("num_preemptions", "preemptions of running requests")
        self._prompt_tokens = self._counter("prompt_tokens", "tokens of prompts that were served")
        self._output_tokens = self._counter("generation_tokens", "tokens that were generated")
        self._prefix_queries = self._counter(
            "prefix_cache_queries", "prompt tokens that were looked for in the prefix cache"
        )
        self._prefix_hits = self._counter(
            "prefix_cache_hits", "prompt tokens that were found in the prefix cache"
        )
        self._failures = self._counter("step_failures", "engine steps that raised an error")
        self._steps = self._counter("engine_steps", "engine steps")
        self._ttft = self._histogram("time_to_first_token_seconds", "arrival to first token")
        self._tpot = self._histogram(
            "request_time_per_output_token_seconds",
            "first to last token of a request / (tokens - 1)",
        )
        self._e2e = self._histogram("e2e_request_latency_seconds", "arrival to last token")
        self._queue = self._histogram("request_queue_time_seconds", "arrival to first step")
        self._answered = Counter(
            f"{_PREFIX}:http_responses",
            "HTTP responses by route and status",
            ("model_name", "path", "status"),
            registry=self._registry,
        )
        self._ended = self._labelled("request_success", "requests by how they ended", ENDS)
        self._positions = self._labelled(
            "executed_positions", "positions that the engine computed, by kind", _POSITIONS
        )

    def exposition(self) -> bytes:
        return generate_latest(self._registry)

    def answered(self, path: str, status: int) -> None:
        """One HTTP response has begun. Paths that no route has are one label."""
        known = path if path in _PATHS else "other"
        self._answered.labels(self._model, known, str(status)).inc()

    def in_flight(self, count: int) -> None:
        """Requests that have arrived and not ended; what does not run among them waits."""
        if count == 0:
            self._num_running = 0
            self._kv_usage.set(0)
        self._running.set(self._num_running)
        self._waiting.set(max(0, count - self._num_running))

    def step(self, events: StepEvents) -> None:
        """One message of the engine's, before its tokens are handed out."""
        for finish in events.finished:
            self._note_end(finish)
        if events.step is not None:
            self._note_step(events.step, len(events.finished))

    def step_failed(self) -> None:
        self._failures.inc()

    def first_token(self, ticket: Ticket) -> None:
        self._prompt_tokens.inc(len(ticket.request.prompt_token_ids))
        if ticket.ttft_s is not None:
            self._ttft.observe(ticket.ttft_s)

    def tokens(self, count: int) -> None:
        self._output_tokens.inc(count)

    def ended(self, ticket: Ticket, end: End) -> None:
        """These latencies are of requests that ended well, and once."""
        self._ended[end].inc()
        if end in ("stop", "length"):
            if ticket.tpot_s is not None:
                self._tpot.observe(ticket.tpot_s)
            if ticket.e2e_s is not None:
                self._e2e.observe(ticket.e2e_s)

    def _note_end(self, finish: Finish) -> None:
        """What the engine tells at a request's end, whatever that end was."""
        stats = finish.stats
        if stats.queue_s is not None and stats.num_steps:
            self._queue.observe(stats.queue_s)
        if stats.prefix_hit_tokens is not None:
            self._prefix_hits.inc(stats.prefix_hit_tokens)
            self._prefix_queries.inc(stats.first_time_prompt + stats.prefix_hit_tokens)

    def _note_step(self, row: StepRow, ended: int) -> None:
        self._steps.inc()
        self._num_running = max(0, row.num_running - ended)
        self._preemptions.inc(row.preemptions)
        for kind in _POSITIONS:
            self._positions[kind].inc(getattr(row, kind))
        self._kv_usage.set(_kv_usage(row))

    def _gauge(self, name: str, help_text: str) -> Gauge:
        gauge = Gauge(f"{_PREFIX}:{name}", help_text, ("model_name",), registry=self._registry)
        return gauge.labels(self._model)

    def _counter(self, name: str, help_text: str) -> Counter:
        counter = Counter(f"{_PREFIX}:{name}", help_text, ("model_name",), registry=self._registry)
        return counter.labels(self._model)

    def _histogram(self, name: str, help_text: str) -> Histogram:
        histogram = Histogram(
            f"{_PREFIX}:{name}",
            help_text,
            ("model_name",),
            registry=self._registry,
            buckets=_BUCKETS_S,
        )
        return histogram.labels(self._model)

    def _labelled(self, name: str, help_text: str, values: tuple[str, ...]) -> dict[str, Counter]:
        """All label values stand from the start, at 0."""
        label = "finished_reason" if values is ENDS else "kind"
        labels = ("model_name", label)
        counter = Counter(f"{_PREFIX}:{name}", help_text, labels, registry=self._registry)
        return {value: counter.labels(self._model, value) for value in values}


def _kv_usage(row: StepRow) -> float:
    """Blocks in use where there are blocks."""
    if row.blocks_used is None:
        return 0.0
    total = row.blocks_used + (row.blocks_cached or 0) + (row.blocks_free or 0)
    return row.blocks_used / total if total else 0.0
