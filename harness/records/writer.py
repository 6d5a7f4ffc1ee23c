"""Writes a cell's raw file while the engine runs, and keeps the few counters of a live view.

`emit` runs in the engine's thread, so all that it does is one encoded line and some sums.
Nothing is judged here: odd events are written as they came and counted by the reader.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from engines.api import Clock, EngineInfo, Request, StepEvents
from harness.records.encoding import encode_events, encode_line, info_to_json, request_columns
from harness.records.line_file import LineFile, OpenStream, open_unbuffered
from harness.records.progress import Progress
from harness.records.schema import RAW_FOLDER, RAW_VERSION, CellKey, CellSnapshot, CellTrailer


class CellRecorder:
    """A sink that appends one JSON line a step to `<folder>/raw/<key>.jsonl`.

    `emit` and `rescheduled` belong to the engine's thread, `snapshot` to any. A disk that fails
    raises `CbbenchError` at the next `emit` or at `close`; what was written stays readable.
    """

    def __init__(
        self,
        folder: Path,
        key: CellKey,
        requests: Sequence[Request],
        *,
        spec: str,
        info: EngineInfo,
        clock: Clock,
        save_outputs: bool = False,
        closed_loop: bool = False,
        open_stream: OpenStream = open_unbuffered,
    ) -> None:
        self._clock = clock
        self._save_outputs = save_outputs
        self._closed_loop = closed_loop
        self._indices = {request.request_id: i for i, request in enumerate(requests)}
        self._scheduled_s = [request.scheduled_s for request in requests]
        self._progress = Progress(key, info, self._scheduled_s)
        self._file = LineFile(Path(folder) / RAW_FOLDER / key.file_name, open_stream)
        header = {
            "v": RAW_VERSION,
            "key": [key.engine, key.load, key.round],
            "spec": spec,
            "info": info_to_json(info),
            "save_outputs": save_outputs,
            "closed_loop": closed_loop,
            "requests": request_columns(requests),
        }
        self._file.append(encode_line(header))

    def emit(self, events: StepEvents) -> None:
        line = encode_events(events, self._indices, save_outputs=self._save_outputs)
        if line is not None:
            self._file.append(line)
        self._progress.add(events, self._indices)

    def rescheduled(self, requests: Sequence[Request]) -> None:
        """Notes arrivals that differ from the schedule given at the start; of a closed loop all."""
        noted = []
        for request in requests:
            index = self._indices.get(request.request_id)
            if index is None:
                continue
            if self._closed_loop or request.scheduled_s != self._scheduled_s[index]:
                self._scheduled_s[index] = request.scheduled_s
                noted.append((index, request.scheduled_s))
        self._progress.taken += len(requests)
        if noted:
            self._file.append(encode_line({"a": noted}))

    def snapshot(self) -> CellSnapshot:
        return self._progress.snapshot(self._clock.now())

    def close(self, trailer: CellTrailer | None = None) -> None:
        """Writes the trailer and all that is buffered; again has no effect.

        Without a trailer the cell stays marked as interrupted.
        """
        self._file.close(None if trailer is None else encode_line({"end": asdict(trailer)}))
