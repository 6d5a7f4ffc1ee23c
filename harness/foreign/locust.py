"""Statistics of locust (`--json`, or `..._stats.csv` of `--csv`), in milliseconds.

locust times a streamed answer to its headers, so a response time is neither E2E nor TTFT and is
compared as what it is. Kinds that cbbench's own locustfile reports are taken at their word. Its
times are rounded before quantiles are taken. The JSON does not tell how long the run was.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from harness.compare.case import Case, Source, Values
from harness.compare.metrics import RESPONSE
from harness.foreign.reading import MS, Count, Number, one_round, read_form, summaries

TOOL: Final = "locust"
STATS_HEADER: Final = ("Type", "Name", "Request Count", "Failure Count")
_ROUNDED: Final = f"{TOOL} rounds times before it takes quantiles"
_KINDS: Final = {"E2E": "e2e_s", "TTFT": "ttft_s", "TPOT": "tpot_s", "LAG": "lag_s"}
_NO_TIMES: Final = ("TOKENS",)
_QUANTILES: Final = {"p50": 0.5, "p95": 0.95, "p99": 0.99}


class _Entry(BaseModel):
    """One line of locust's table; `response_times` counts by milliseconds."""

    model_config = ConfigDict(extra="ignore")

    name: str
    method: str = ""
    num_requests: Count
    num_failures: Count = 0
    total_response_time: Number = None
    max_response_time: Number = None
    response_times: dict[_Milliseconds, Count] = Field(default_factory=dict)


def _csv_number(value: Any) -> float | None:
    """`N/A`, which locust writes for a quantile of nothing, is unknown."""
    try:
        return float(value)
    except (TypeError, ValueError):
        return None


def _csv_count(value: Any) -> Any:
    return int(value) if isinstance(value, str) and value.isascii() and value.isdigit() else value


_CsvNumber = Annotated[Number, BeforeValidator(_csv_number)]
_CsvCount = Annotated[Count, BeforeValidator(_csv_count)]
_Milliseconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class _Row(BaseModel):
    model_config = ConfigDict(extra="ignore", populate_by_name=True)

    method: str = Field(alias="Type")
    name: str = Field(alias="Name")
    requests: _CsvCount = Field(alias="Request Count")
    failures: _CsvCount = Field(alias="Failure Count")
    mean: _CsvNumber = Field(alias="Average Response Time")
    max: _CsvNumber = Field(alias="Max Response Time")
    rate: _CsvNumber = Field(alias="Requests/s")
    p50: _CsvNumber = Field(alias="50%")
    p95: _CsvNumber = Field(alias="95%")
    p99: _CsvNumber = Field(alias="99%")


@dataclass(frozen=True, slots=True)
class _Line:
    """A line of the table in either form, in milliseconds."""

    method: str
    name: str
    requests: int
    failures: int
    rate: float | None
    summaries: Mapping[str, float | None]


def recognised(value: object) -> bool:
    return (
        isinstance(value, list)
        and bool(value)
        and all(isinstance(item, dict) and "response_times" in item for item in value)
    )


def recognised_csv(text: str) -> bool:
    return text.startswith(",".join(STATS_HEADER))


def read_locust(value: object, path: str, name: str) -> Source:
    """The JSON. Raises `CbbenchError` for a file that is not as locust writes it."""
    entries = read_form(list[_Entry], value, path, TOOL)
    return _source(name, [_from_json(entry) for entry in entries])


def read_locust_csv(text: str, path: str, name: str) -> Source:
    """`..._stats.csv`. Its sum over all endpoints is left out where there is an endpoint."""
    table = [_named(row) for row in csv.DictReader(io.StringIO(text))]
    rows = read_form(list[_Row], table, path, TOOL)
    endpoints = [row for row in rows if row.method] or rows
    return _source(name, [_from_csv(row) for row in endpoints])


def _named(row: Mapping[str | None, Any]) -> dict[str, Any]:
    """A row without what stands beyond the last column."""
    return {key: value for key, value in row.items() if key is not None}


def _from_json(entry: _Entry) -> _Line:
    return _Line(
        method=entry.method,
        name=entry.name,
        requests=entry.num_requests,
        failures=entry.num_failures,
        rate=None,
        summaries={
            "mean": _mean(entry.total_response_time, entry.num_requests),
            **_bucket_quantiles(entry),
            "max": entry.max_response_time if entry.num_requests else None,
        },
    )


def _from_csv(row: _Row) -> _Line:
    quantiles = {"p50": row.p50, "p95": row.p95, "p99": row.p99}
    found = {"mean": row.mean, "max": row.max} | {
        name: value if value is None or row.max is None else min(value, row.max)
        for name, value in quantiles.items()  # locust rounds them, and so beyond its maximum
    }
    return _Line(
        method=row.method,
        name=row.name,
        requests=row.requests,
        failures=row.failures,
        rate=row.rate,
        summaries=found if row.requests else {},
    )


def _mean(total: float | None, number: int) -> float | None:
    return None if total is None or not number else total / number


def _bucket_quantiles(entry: _Entry) -> dict[str, float | None]:
    """The smallest bucket that holds so large a share; a bucket may be rounded past the maximum."""
    buckets = sorted(entry.response_times.items())
    total = sum(count for _, count in buckets)
    most = entry.max_response_time
    found: dict[str, float | None] = {}
    for summary, share in _QUANTILES.items():
        seen = 0
        for ms, count in buckets:
            seen += count
            if seen >= share * total > 0:
                found[summary] = ms if most is None else min(ms, most)
                break
    return found


def _source(name: str, lines: Iterable[_Line]) -> Source:
    by_endpoint: dict[str, list[_Line]] = {}
    for line in lines:
        if line.method not in _NO_TIMES:
            plain = line.name if line.method in _KINDS else f"{line.method} {line.name}".strip()
            by_endpoint.setdefault(plain, []).append(line)
    cases = tuple(_case(endpoint, found) for endpoint, found in by_endpoint.items())
    return Source(name, TOOL, None, None, cases)


def _case(endpoint: str, lines: list[_Line]) -> Case:
    counted = next((line for line in lines if line.method == "E2E"), lines[0])
    values: dict[str, Values] = one_round([("request_throughput_req_s", counted.rate)])
    definitions: dict[str, str] = {
        "request_throughput_req_s": f"{TOOL} counts failures as requests, and divides by its run"
    }
    for line in lines:
        metric = _KINDS.get(line.method, RESPONSE)
        values |= one_round(summaries(metric, line.summaries, MS))
        definitions[metric] = _ROUNDED
    return Case(
        engine=endpoint,
        load="locust",
        request_rate=None,
        max_concurrency=None,
        rounds=(1,),
        values=values,
        offered=counted.requests,
        ok=max(0, counted.requests - counted.failures),
        definitions=definitions,
        notes=_no_rate(counted),
    )


def _no_rate(line: _Line) -> tuple[str, ...]:
    if line.rate is not None:
        return ()
    return ("this file does not tell how long the run was, so it gives no rate",)
