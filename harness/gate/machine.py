"""What kind of machine a run was made on: baselines of another kind say nothing about it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from harness.results.values import RunFile

_UNKNOWN: Final = "unknown"


@dataclass(frozen=True, slots=True)
class Machine:
    """`model` is the GPU's where the model ran on one, else the CPU's; `cores` only counts there.

    What a run does not tell is "unknown".
    """

    model: str
    cores: int | None
    dtype: str

    def same_kind(self, other: Machine) -> bool:
        """Nobody knows that two unknown machines are alike."""
        return self == other and self.model != _UNKNOWN

    @property
    def only_the_clients(self) -> bool:
        """Whether no engine told what it computes in: then it runs on a machine of its own."""
        return self.dtype == _UNKNOWN

    def __str__(self) -> str:
        cores = "" if self.cores is None else f", {self.cores} cores"
        return f"{self.model}{cores}, {self.dtype}"


def machine_of(run: RunFile) -> Machine:
    told = run.settings.get("model_info")
    model: dict[str, Any] = told if isinstance(told, dict) else {}
    dtype = _text(model.get("dtype"))
    if str(model.get("device", "")).startswith("cuda"):
        return Machine(_text(model.get("device_name")), None, dtype)
    cores = run.environment.get("cores_usable")
    cpu = run.environment.get("cpu") or run.environment.get("machine")
    return Machine(_text(cpu), cores if isinstance(cores, int) else None, dtype)


def _text(value: object) -> str:
    return value if isinstance(value, str) and value else _UNKNOWN
