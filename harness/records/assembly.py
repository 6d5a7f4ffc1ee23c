"""Puts a cell together from the lines of its raw file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Final

from engines.api import FinishReason, RequestStats, Status, StepRow
from harness.records.encoding import (
    REQUEST_FIELDS,
    decode_stats,
    decode_step,
    info_from_json,
)
from harness.records.schema import CellKey, CellRecord, CellTrailer, Defects, RequestRecord

_CUT_SHORT: Final = "the recording was cut short before this request ended"
_RUN_ENDED: Final = "the run ended before this request did"
_EMPTY: Final = "the answer was empty where tokens were due"


@dataclass(slots=True)
class _Progress:
    """What has been seen of one request."""

    times_s: list[float] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)
    output_ids: list[int] = field(default_factory=list)
    end: tuple[Status, FinishReason | None, str, RequestStats] | None = None


class CellAssembly:
    """One cell in the making: a header, then any number of lines, then `finished()`."""

    def __init__(self, header: Mapping[str, Any]) -> None:
        engine, load, number = header["key"]
        self._key = CellKey(engine, load, number)
        self._spec: str = header["spec"]
        self._info = info_from_json(header["info"])
        self._save_outputs: bool = header["save_outputs"]
        columns = header["requests"]
        self._requests = list(zip(*(columns[name] for name in REQUEST_FIELDS), strict=True))
        self._scheduled_s: list[float] = list(columns["scheduled_s"])
        self._seen = [_Progress() for _ in self._requests]
        self._steps: list[StepRow] = []
        self._trailer: CellTrailer | None = None
        self._defects = dict.fromkeys((f.name for f in fields(Defects)), 0)
        self._end_s = 0.0
        self._closed_loop: bool = header.get("closed_loop", False)
        self._handed_out: set[int] = set()

    def add(self, line: Mapping[str, Any]) -> None:
        if line.get("nan"):
            self._defects["not_a_number"] += 1
        if "end" in line:
            self._trailer = _trailer(line["end"])
            self._end_s = max(self._end_s, self._trailer.end_s)
        elif "a" in line:
            self._closed_loop = True
            for index, scheduled_s in line["a"]:
                self._scheduled_s[index] = scheduled_s
                self._handed_out.add(index)
        elif line.get("t") is not None:
            self._add_events(line)

    def _add_events(self, line: Mapping[str, Any]) -> None:
        time_s: float = line["t"]
        self._end_s = max(self._end_s, time_s)
        names = line.get("r", ())
        counts = line.get("n") or [1] * len(names)
        ids = line.get("k") or [()] * len(names)
        for name, count, token_ids in zip(names, counts, ids, strict=True):
            self._add_tokens(name, time_s, count, token_ids)
        for name, *end, stats in line.get("f", ()):
            self._add_end(name, end, stats)
        for name, true_counts in line.get("c", ()):
            self._correct(name, true_counts)
        if "s" in line and (row := decode_step(line["s"])) is not None:
            self._steps.append(row)

    def _add_tokens(self, name: int | str, time_s: float, count: int, ids: Sequence[int]) -> None:
        if not isinstance(name, int):
            self._defects["unknown_request"] += 1
            return
        seen = self._seen[name]
        if seen.end is not None:
            self._defects["after_finish"] += 1
            return
        if seen.times_s and time_s < seen.times_s[-1]:
            self._defects["out_of_order"] += 1
            time_s = seen.times_s[-1]
        if time_s < self._scheduled_s[name]:
            self._defects["before_arrival"] += 1
            time_s = self._scheduled_s[name]
        if count > 0:
            seen.times_s.append(time_s)
            seen.counts.append(count)
            seen.output_ids.extend(ids)

    def _add_end(self, name: int | str, end: Sequence[Any], stats: Sequence[Any]) -> None:
        if not isinstance(name, int):
            self._defects["unknown_request"] += 1
            return
        seen = self._seen[name]
        if seen.end is not None:
            self._defects["finished_twice"] += 1
            return
        status, finish_reason, reason = end
        seen.end = (status, finish_reason, reason, decode_stats(stats))

    def _correct(self, name: int | str, counts: Sequence[int]) -> None:
        """An event that turns out to have carried no token is none."""
        if not isinstance(name, int) or len(counts) != len(self._seen[name].counts):
            return
        seen = self._seen[name]
        pairs = [(t, n) for t, n in zip(seen.times_s, counts, strict=True) if n > 0]
        seen.times_s = [time_s for time_s, _ in pairs]
        seen.counts = [count for _, count in pairs]

    def finished(self) -> CellRecord:
        return CellRecord(
            key=self._key,
            spec=self._spec,
            info=self._info,
            requests=tuple(self._record(i) for i in range(len(self._requests))),
            steps=tuple(self._steps),
            trailer=self._trailer,
            defects=Defects(**self._defects),
            end_s=self._end_s,
            closed_loop=self._closed_loop,
        )

    def _record(self, index: int) -> RequestRecord:
        name, label, session, prompt_tokens, max_tokens, ignore_eos, _ = self._requests[index]
        seen = self._seen[index]
        status, finish_reason, reason, stats = seen.end or self._unended()
        if status == "ok" and not seen.counts:
            status, finish_reason, reason = "failed", None, _EMPTY
        return RequestRecord(
            request_id=name,
            label=label,
            session=session,
            prompt_tokens=prompt_tokens,
            max_tokens=max_tokens,
            ignore_eos=ignore_eos,
            scheduled_s=self._scheduled_s[index],
            status=status,
            finish_reason=finish_reason,
            reason=reason,
            stats=stats,
            token_times_s=tuple(seen.times_s),
            token_counts=tuple(seen.counts),
            output_ids=tuple(seen.output_ids) if self._save_outputs else None,
            arrived=self._has_arrived(index),
        )

    def _has_arrived(self, index: int) -> bool:
        """In a closed loop only what was handed out has arrived; the rest has no time yet."""
        seen = self._seen[index]
        return (
            not self._closed_loop
            or index in self._handed_out
            or seen.end is not None
            or bool(seen.times_s)
        )

    def _unended(self) -> tuple[Status, FinishReason | None, str, RequestStats]:
        """A request that the run's end cut off; one that a broken engine left is its failure."""
        if self._trailer is None:
            return "cancelled", None, _CUT_SHORT, RequestStats()
        if self._trailer.error:
            return "failed", None, self._trailer.error, RequestStats()
        return "cancelled", None, _RUN_ENDED, RequestStats()


def _trailer(value: Mapping[str, Any]) -> CellTrailer:
    known = {f.name for f in fields(CellTrailer)}
    return CellTrailer(**{key: item for key, item in value.items() if key in known})
