"""What a server tells of itself in `/metrics`, before, during and after a run.

Knows the names of vLLM, SGLang, TGI and our own server, and reads nothing else. What a server does
not tell is `None`. Runs in a thread of its own, so that a slow page holds no request up.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from statistics import fmean
from typing import Final

import httpx
from prometheus_client.parser import text_string_to_metric_families

from engines.api import JsonValue
from engines.remote.connections import TRANSPORT_ERRORS, proxy_for
from engines.remote.options import is_loopback
from engines.remote.pages import fetch, fetch_blocking

INTERVAL_S: Final = 0.5
_PATIENCE_S: Final = 2.0


@dataclass(frozen=True, slots=True)
class Reading:
    """One look. Counts since the server's start; `kv_usage` from 0 to 1."""

    preemptions: float | None = None
    prefix_hit_tokens: float | None = None
    prefix_query_tokens: float | None = None
    kv_usage: float | None = None
    running: float | None = None
    waiting: float | None = None

    @property
    def says_something(self) -> bool:
        return any(getattr(self, field.name) is not None for field in fields(self))


# The first name of each that a page has counts. Servers with several engines repeat a name with
# other labels: shares are averaged, all else is added up.
_NAMES: Final[Mapping[str, tuple[str, ...]]] = {
    "preemptions": (
        "cbbench:num_preemptions_total",
        "vllm:num_preemptions_total",
        "sglang:num_retracted_requests_total",
        "sglang:num_retracted_reqs_total",
    ),
    "prefix_hit_tokens": (
        "cbbench:prefix_cache_hits_total",
        "vllm:prefix_cache_hits_total",
        "vllm:gpu_prefix_cache_hits_total",
        "sglang:cached_tokens_total",
    ),
    "prefix_query_tokens": (
        "cbbench:prefix_cache_queries_total",
        "vllm:prefix_cache_queries_total",
        "vllm:gpu_prefix_cache_queries_total",
        "sglang:prompt_tokens_total",
    ),
    "kv_usage": (
        "cbbench:kv_cache_usage_perc",
        "vllm:kv_cache_usage_perc",
        "vllm:gpu_cache_usage_perc",
        "sglang:token_usage",
    ),
    "running": (
        "cbbench:num_requests_running",
        "vllm:num_requests_running",
        "sglang:num_running_reqs",
        "tgi_batch_current_size",
    ),
    "waiting": (
        "cbbench:num_requests_waiting",
        "vllm:num_requests_waiting",
        "sglang:num_queue_reqs",
        "tgi_queue_size",
    ),
}
_WANTED: Final = tuple(name for names in _NAMES.values() for name in names)
_SHARES: Final = ("kv_usage",)


def read_metrics(page: str) -> Reading:
    """A page in Prometheus' text format; what it has of the known names."""
    found: dict[str, list[float]] = {}
    # Most of a page is histograms; the parser is slow, so it gets the few lines that matter.
    lines = "\n".join(line for line in page.splitlines() if line.startswith(_WANTED))
    try:
        for family in text_string_to_metric_families(lines + "\n"):
            for sample in family.samples:
                found.setdefault(sample.name, []).append(float(sample.value))
    except ValueError:
        return Reading()
    return Reading(**{field: _value(field, names, found) for field, names in _NAMES.items()})


def _value(field: str, names: Sequence[str], found: Mapping[str, list[float]]) -> float | None:
    values = next((found[name] for name in names if name in found), None)
    if not values:
        return None
    value = fmean(values) if field in _SHARES else sum(values)
    return value if value >= 0 else None  # what is no number fails this too


async def fetch_page(client: httpx.AsyncClient, root: str) -> str:
    """The page, over a client's own connections; empty where there is none."""
    try:
        page = await fetch(client, "GET", f"{root}/metrics", _PATIENCE_S)
    except TRANSPORT_ERRORS:
        return ""
    return page.text if page.status == 200 else ""


class Scraper:
    """Follows one server. `begin`, then `watch`, `unwatch`, then `report`, for each run."""

    def __init__(self, root: str, key: str | None) -> None:
        self._root = root
        self._key = key
        self._before = Reading()
        self._during: list[Reading] = []
        self._missed = 0
        self._watch: tuple[threading.Thread, threading.Event] | None = None

    def begin(self, page: str) -> None:
        """The page that counts start from."""
        self._during, self._missed = [], 0
        self._before = read_metrics(page)

    def watch(self) -> None:
        """Looks again and again until `unwatch`, if there was anything to see."""
        if self._before.says_something:
            ended = threading.Event()
            thread = threading.Thread(
                target=self._look_on, args=(ended,), name="scraper", daemon=True
            )
            self._watch = thread, ended
            thread.start()

    def unwatch(self) -> None:
        """A look that never comes to its end is left to itself; what it sees counts for nothing."""
        if self._watch is not None:
            thread, ended = self._watch
            self._watch = None
            ended.set()
            thread.join(2 * _PATIENCE_S)

    def report(self, page: str) -> dict[str, JsonValue] | None:
        """Counts until `page`, gauges within the run; `None` for a server that tells nothing."""
        before, after = self._before, read_metrics(page)
        if not (before.says_something and after.says_something):
            return None
        return {
            "scrapes": len(self._during) + 2,
            "missed_scrapes": self._missed,
            "preemptions": _more(before.preemptions, after.preemptions),
            "prefix_hit_tokens": _more(before.prefix_hit_tokens, after.prefix_hit_tokens),
            "prefix_query_tokens": _more(before.prefix_query_tokens, after.prefix_query_tokens),
            "kv_usage": _spread([reading.kv_usage for reading in self._during]),
            "running": _spread([reading.running for reading in self._during]),
            "waiting": _spread([reading.waiting for reading in self._during]),
        }

    def _look_on(self, ended: threading.Event) -> None:
        with self._client() as client:
            while not ended.wait(INTERVAL_S):
                reading = self._look(client)
                if ended.is_set():
                    return
                if reading.says_something:
                    self._during.append(reading)
                else:
                    self._missed += 1

    def _look(self, client: httpx.Client) -> Reading:
        try:
            page = fetch_blocking(client, f"{self._root}/metrics", _PATIENCE_S)
        except TRANSPORT_ERRORS:
            return Reading()
        return read_metrics(page.text) if page.status == 200 else Reading()

    def _client(self) -> httpx.Client:
        """One of the thread's own: the requests' loop may be another process's."""
        return httpx.Client(
            headers={} if self._key is None else {"authorization": f"Bearer {self._key}"},
            timeout=_PATIENCE_S,
            trust_env=False,
            proxy=None if is_loopback(self._root) else proxy_for(self._root),
        )


def _more(before: float | None, after: float | None) -> int | None:
    """`None` as well for a counter that went back: the server was started anew."""
    if before is None or after is None or after < before:
        return None
    return round(after - before)


def _spread(values: Sequence[float | None]) -> dict[str, JsonValue] | None:
    known = [value for value in values if value is not None]
    return {"mean": fmean(known), "peak": max(known)} if known else None
