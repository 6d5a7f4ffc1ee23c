"""How numbers and outside text are written: one rule for every table and sentence.

ASCII only, so that any terminal can print it. Undefined is "n/a", never 0 or an empty cell.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any, Final

from harness.statistics import pool_rounds

MISSING: Final = "n/a"
THIN: Final = "*"
METRIC_WORDS: Final = {
    "output_throughput_tok_s": "output tokens per second",
    "request_throughput_req_s": "requests per second",
    "goodput_req_s": "goodput (requests per second)",
    "attainment": "attainment",
    "ttft_s.p50": "median TTFT",
    "ttft_s.p95": "p95 TTFT",
    "tpot_s.p50": "median TPOT",
    "tpot_s.p95": "p95 TPOT",
    "itl_s.p95": "p95 ITL",
    "e2e_s.p50": "median E2E",
    "e2e_s.p95": "p95 E2E",
    "max_stall_s.p95": "p95 stall",
    "max_stall_s.max": "longest stall",
    "total_throughput_tok_s": "prompt and output tokens per second",
    "preemptions.total": "preemptions",
    "ttft_s by request": "TTFT, request by request",
    "tpot_s by request": "TPOT, request by request",
    "e2e_s by request": "E2E, request by request",
}


def number(value: float | None, digits: int = 3) -> str:
    """At least `digits` figures; whole parts are never rounded away."""
    if value is None or math.isnan(value):
        return MISSING
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    if value == 0:
        return "0"
    rounded = float(f"{value:.{digits - 1}e}")  # 9.999 has the figures of 10.0
    behind = max(0, digits - 1 - math.floor(math.log10(abs(rounded))))
    return f"{value:.{min(behind, 9)}f}"


def milliseconds(seconds: float | None) -> str:
    return number(None if seconds is None else seconds * 1e3)


def percent(share: float | None) -> str:
    return MISSING if share is None else f"{share * 100:.1f}%"


def metric_value(metric: str, value: float | None) -> str:
    """A value of `metric` with its unit."""
    if value is None:
        return MISSING
    if metric == "attainment":
        return percent(value)
    if "throughput" in metric or metric.startswith("goodput"):
        return number(value)
    if metric.startswith("preemptions"):
        return f"{value:g}"
    return f"{milliseconds(value)} ms"


def over_rounds(values: Sequence[float | None], form: Any = number) -> str:
    """The median of the rounds, with the range when there are several."""
    pooled = pool_rounds(values)
    if pooled.n < 2:
        return str(form(pooled.median))
    return f"{form(pooled.median)} ({form(pooled.lowest)}-{form(pooled.highest)})"


def plain(text: object) -> str:
    """Outside text on one line, control characters shown as escapes."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in str(text))


def code(text: object) -> str:
    """Outside text as a Markdown code span, which shows it literally, in tables too."""
    line = plain(text).replace("|", "\\|") or " "
    longest = max((len(run) for run in re.findall("`+", line)), default=0)
    fence = "`" * (longest + 1)
    pad = " " if longest else ""
    return f"{fence}{pad}{line}{pad}{fence}"


def json_text(value: Any) -> str:
    """A setting's value as people write it."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        return ", ".join(f"{key}={json_text(item)}" for key, item in value.items()) or "none"
    if isinstance(value, list | tuple):
        return ", ".join(json_text(item) for item in value) or "none"
    return plain(value)
