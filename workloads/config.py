"""An opened workload: read from its file and checked, not yet drawn."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from engines.api import CbbenchError
from workloads.jsonl import TextPrompt, read_prompts
from workloads.preset_files import Preset, load_preset, read_preset
from workloads.traces.formats import read_trace
from workloads.traces.rows import Trace

DEFAULT_TRACE_FORMAT: Final = "azure"


@dataclass(frozen=True, slots=True)
class TextPrompts:
    """A file of prompts. `prompts` are in the file's order."""

    path: Path
    prompts: tuple[TextPrompt, ...]


@dataclass(frozen=True, slots=True)
class WorkloadConfig:
    """A workload that can be drawn any number of times. `spec` is what the user wrote."""

    spec: str
    content: Preset | Trace | TextPrompts

    @property
    def name(self) -> str:
        """The workload for a result file, which anyone may see: a file without its folder."""
        kind, colon, _ = self.spec.partition(":")
        match self.content:
            case Trace(path=path) | TextPrompts(path=path):
                return f"{kind}{colon}{path.name}"
            case Preset():
                return Path(self.spec).name

    @property
    def needs_encode(self) -> bool:
        """Whether drawing needs the model's tokenizer."""
        return isinstance(self.content, TextPrompts)


def open_workload(spec: str, *, trace_format: str = DEFAULT_TRACE_FORMAT) -> WorkloadConfig:
    """Opens a preset's name, a preset file `PATH.toml`, `trace:PATH` or `jsonl:PATH`.

    Raises `CbbenchError` for an unknown preset and for a file that cannot be read or understood.
    """
    kind, colon, rest = spec.partition(":")
    if colon and kind in ("trace", "jsonl") and not rest:
        raise CbbenchError(f"workload {spec!r} names no file; expected {kind}:PATH")
    path = Path(rest).expanduser()  # no shell expands the ~ of trace:~/conv.csv
    if colon and kind == "trace":
        return WorkloadConfig(spec, read_trace(path, trace_format))
    if colon and kind == "jsonl":
        return WorkloadConfig(spec, TextPrompts(path, read_prompts(path)))
    if spec.endswith(".toml"):
        return WorkloadConfig(spec, read_preset(Path(spec)))
    return WorkloadConfig(spec, load_preset(spec))
