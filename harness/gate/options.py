"""What a check looks at, and what of it gates. Values only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from engines.api import CbbenchError
from harness.compare.metrics import direction_of
from harness.gate.limits import Limits

DEFAULT_METRIC: Final = "output_throughput_tok_s"
TAILS: Final = ("ttft_s.p95", "tpot_s.p95", "e2e_s.p95", "max_stall_s.max")


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckOptions:
    """`relative_to`: the label of the engine that each round's values are divided by.

    `gate_tails`: the tails count too. `strict`: a SUSPECT case decides nothing.
    """

    metrics: tuple[str, ...]
    limits: Limits
    relative_to: str | None = None
    engine: str | None = None
    load: str | None = None
    gate_tails: bool = False
    strict: bool = False


def looked_at(options: CheckOptions) -> dict[str, bool]:
    """Every metric that is looked at, and whether it gates."""
    found = dict.fromkeys(options.metrics, True)
    for name in TAILS:
        found.setdefault(name, options.gate_tails)
    return found


def check_limits(metrics: dict[str, bool], options: CheckOptions) -> None:
    """Raises `CbbenchError` for an unknown metric, or a limit that nothing could pass."""
    for name in metrics:
        if direction_of(name) == "higher" and options.limits.max_regression >= 1:
            raise CbbenchError(
                f"--max-regression is {options.limits.max_regression:.0%}, and {name} cannot fall "
                "by that; give less than 100%"
            )
