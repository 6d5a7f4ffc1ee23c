"""A check as JSON. What is unknown is `null`."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any, Final

from harness.gate.check import Checked
from harness.gate.side import Side
from harness.records.encoding import strict_json

CHECK_VERSION: Final = 1


def checked_to_json(checked: Checked) -> str:
    """Strict JSON, with the exit code in it."""
    options = checked.options
    plain = {
        "schema_version": CHECK_VERSION,
        "outcome": checked.outcome,
        "exit_code": checked.exit_code,
        "workload_hash": checked.run.source.workload_hash,
        "run": _side(checked.run.source.name, checked.run),
        "baseline": _side(checked.baseline_name, checked.baseline),
        "relative_to": options.relative_to,
        "max_regression": options.limits.max_regression,
        "max_increase_abs": options.limits.max_increase_abs,
        "paired": False,
        "findings": [
            {
                "engine": finding.engine,
                "load": finding.load,
                "metric": finding.metric,
                "direction": finding.direction,
                "gates": finding.gates,
                **asdict(finding.decision),
            }
            for finding in checked.findings
        ],
        "notes": list(checked.notes),
    }
    return json.dumps(strict_json(plain), allow_nan=False, indent=1) + "\n"


def _side(name: str, side: Side | None) -> dict[str, Any]:
    if side is None:
        return {"name": name, "machine": None, "facts": None}
    return {"name": name, "machine": asdict(side.machine), "facts": dict(side.source.facts)}
