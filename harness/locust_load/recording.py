"""The records of one run while it goes on: opened at its beginning, fed by reports, closed once."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING

from engines.api import Clock, JsonValue
from engines.remote.listeners import listeners
from engines.remote.options import is_loopback
from harness.locust_load import closing
from harness.locust_load.collector import Collector
from harness.locust_load.key import ApiKey
from harness.locust_load.layout import Layout
from harness.locust_load.probe import ask_metrics
from harness.records import CellKey, CellRecorder, CellTrailer
from harness.results.file import open_run
from harness.worker.machine_watch import between, sample, usable_cpus

if TYPE_CHECKING:
    from engines.remote.scrape import Scraper


class Recording:
    """From just before t0 on. Raises `CbbenchError` when the folder cannot be written."""

    def __init__(
        self, layout: Layout, setting: closing.Setting, workers: Sequence[str], clock: Clock
    ) -> None:
        self._layout = layout
        self._setting = setting
        self._clock = clock
        plan, options = layout.plan, layout.options
        open_run(layout.folder.path, closing.describe(setting), layout.environment)
        self._recorder = CellRecorder(
            layout.folder.path,
            CellKey(options.label, plan.load.name, 1),
            plan.requests,
            spec=closing.spec_of(options),
            info=closing.engine_info(setting),
            clock=clock,
            closed_loop=plan.closed_loop,
        )
        shares = {
            worker: list(chain.from_iterable(plan.share(place, len(workers))))
            for place, worker in enumerate(workers)
        }
        self.collector = Collector(self._recorder, plan.requests, shares)
        self._server_pids = listeners(options.host)
        key = ApiKey.from_environment(options.api_key_env)
        self._metrics_page = partial(ask_metrics, options.host, key)
        self._scraper = _scraper(options.host, key)
        self._scraper.begin(self._metrics_page())
        self._scraper.watch()
        self._before = sample(os.getpid(), self._server_pids)
        self._trailer: CellTrailer | None = None

    def end(self, *, interrupted: bool, workers: int, warmups: int, are_ours: bool) -> None:
        """The last instant. Others' CPU means nothing where the server, or a worker, is one."""
        self._scraper.unwatch()
        pid = os.getpid()
        after = sample(pid, self._server_pids)
        disturbance = between(self._before, after, len(usable_cpus(pid)))
        is_elsewhere = not is_loopback(self._layout.options.host)
        told_apart = are_ours and (is_elsewhere or bool(self._server_pids))
        tally = self.collector.tally
        self._trailer = CellTrailer(
            end_s=self._clock.now(),
            interrupted=interrupted,
            warmup_requests=warmups,
            others_cpu_share=disturbance.others_cpu if told_apart else None,
            clock_drift_s=disturbance.clock_drift_s,
            gc_pauses=tally.gc_pauses,
            gc_pause_s=tally.gc_pause_s,
            remote={
                "client": {"processes": workers, "connection_retries": 0, "certificate": None},
                "server": self._scraper.report(self._metrics_page()),
            },
        )

    def close(self, facts: Mapping[str, JsonValue], encoding: str) -> closing.Outcome:
        """After `end`. `facts` are settings that only the run could show."""
        self._recorder.close(self._trailer)
        layout = self._layout
        settings = closing.describe(self._setting) | dict(facts)
        return closing.close(
            layout.folder.path, layout.options, settings, layout.environment, encoding
        )


def _scraper(host: str, key: ApiKey) -> Scraper:
    from engines.remote.scrape import Scraper  # loads an HTTP client that no worker needs

    return Scraper(host, key.value)
