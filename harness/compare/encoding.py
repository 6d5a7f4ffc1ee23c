"""A comparison of finished runs as JSON, with run.json's names where the meaning is the same."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from typing import Any, Final

from harness.compare.across import Matched, RunRatio, RunsCompared
from harness.compare.case import Source
from harness.records.encoding import strict_json

COMPARE_VERSION: Final = 1


def compared_to_json(compared: RunsCompared) -> str:
    """Strict JSON: what is unknown is `null`."""
    plain = {
        "schema_version": COMPARE_VERSION,
        "workload_hash": compared.sources[0].workload_hash,
        "sources": [_source(source) for source in compared.sources],
        "comparisons": [
            _comparison(matched, ratio) for matched in compared.matched for ratio in matched.ratios
        ],
        "left_out": list(compared.left_out),
    }
    return json.dumps(strict_json(plain), allow_nan=False, indent=1) + "\n"


def _source(source: Source) -> dict[str, Any]:
    return {
        "name": source.name,
        "tool": source.tool,
        "workload": source.workload,
        "workload_hash": source.workload_hash,
        "facts": dict(source.facts),
        "cases": [
            {
                "engine": case.engine,
                "load": case.load,
                "request_rate": case.request_rate,
                "max_concurrency": case.max_concurrency,
                "rounds": list(case.rounds),
                "offered": case.offered,
                "ok": case.ok,
                "suspect_rounds": case.suspect,
                "unfinished_rounds": case.unfinished,
                "broken_rounds": case.broken,
                "with_failures": {
                    name: ["inf" if value == math.inf else value for value in values]
                    for name, values in case.with_failures.items()
                },
                "notes": list(case.notes),
            }
            for case in source.cases
        ],
    }


def _comparison(matched: Matched, ratio: RunRatio) -> dict[str, Any]:
    return {
        "load": matched.baseline.load,
        "engine_load": matched.engine.load,
        "baseline_source": matched.baseline_source,
        "baseline": matched.baseline.engine,
        "engine_source": matched.engine_source,
        "engine": matched.engine.engine,
        "paired": False,
        "same_requests": matched.same_requests,
        "also_different": list(matched.also_different),
        **asdict(ratio),
    }
