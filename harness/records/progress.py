"""The counters of a running cell, for a live view. The report never reads them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from engines.api import EngineInfo, RequestId, Status, StepEvents, StepRow
from harness.records.schema import STATUSES, CellKey, CellSnapshot

_WAITS_FOR_FIRST, _RUNS, _ENDED = 0, 1, 2


class Progress:
    """Added to by the engine's thread, read by another.

    Each field is replaced or grown in one step, so that a reader sees a value that once held.
    """

    def __init__(self, key: CellKey, info: EngineInfo, scheduled_s: Sequence[float]) -> None:
        self._key = key
        self._info = info
        self._scheduled_s = scheduled_s
        self._state = [_WAITS_FOR_FIRST] * len(scheduled_s)
        self._counts: dict[Status, int] = dict.fromkeys(STATUSES, 0)
        self._ttft_s: list[float] = []
        self._in_service = 0
        self._output_tokens = 0
        self._last_step: StepRow | None = None
        self._steps = 0
        self._preemptions = 0
        self._defects = 0
        self.taken = 0

    def add(self, events: StepEvents, indices: Mapping[RequestId, int]) -> None:
        state = self._state
        for name, ids in zip(events.request_ids, events.token_ids, strict=True):
            index = indices.get(name)
            if index is None or state[index] == _ENDED:
                self._defects += 1
                continue
            self._output_tokens += len(ids)
            if state[index] == _WAITS_FOR_FIRST:
                state[index] = _RUNS
                self._in_service += 1
                self._ttft_s.append(events.time_s - self._scheduled_s[index])
        for finish in events.finished:
            index = indices.get(finish.request_id)
            if index is None or state[index] == _ENDED:
                self._defects += 1
                continue
            self._in_service -= state[index] == _RUNS
            state[index] = _ENDED
            self._counts[finish.status] += 1
        if events.step is not None:
            self._last_step = events.step
            self._steps += 1
            self._preemptions += events.step.preemptions

    def snapshot(self, elapsed_s: float) -> CellSnapshot:
        counts = dict(self._counts)
        done = sum(counts.values())
        ttft_s = self._ttft_s.copy()
        row = self._last_step
        in_service = self._in_service
        tokens = self._output_tokens
        return CellSnapshot(
            key=self._key,
            elapsed_s=elapsed_s,
            total=len(self._scheduled_s),
            done=done,
            counts=counts,
            running=in_service if row is None else row.num_running,
            waiting=max(0, self.taken - done - in_service) if row is None else row.num_waiting,
            output_tokens=tokens,
            output_tok_s=tokens / elapsed_s if elapsed_s > 0 else None,
            ttft_p95_s=float(np.quantile(ttft_s, 0.95)) if ttft_s else None,
            kv_used=_kv_used(row, self._info.kv_tokens),
            slots=self._info.slots,
            preemptions=self._preemptions,
            steps=self._steps,
            defects=self._defects,
        )


def _kv_used(row: StepRow | None, kv_tokens: int | None) -> float | None:
    """The part of the pool that is reserved; `None` where the engine cannot know."""
    if row is None:
        return None
    if row.tokens_reserved is not None and kv_tokens:
        return row.tokens_reserved / kv_tokens
    if row.blocks_used is None or row.blocks_free is None:
        return None
    total = row.blocks_used + (row.blocks_cached or 0) + row.blocks_free
    return row.blocks_used / total if total else None
