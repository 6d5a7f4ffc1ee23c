"""What the readers of other tools' files share: numbers from outside, and errors in a sentence.

A number that is not finite is unknown, and so is one that is missing; neither becomes 0. Metrics
and units are each tool's own module's to know.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Final, TypeVar

from pydantic import BeforeValidator, Field, TypeAdapter, ValidationError

from engines.api import CbbenchError
from harness.compare.case import Rate, Values

T = TypeVar("T")
MS: Final = 1e-3


def _finite_or_unknown(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


Number = Annotated[float | None, Field(strict=True, ge=0), BeforeValidator(_finite_or_unknown)]
Count = Annotated[int, Field(strict=True, ge=0, le=10**15)]


def read_form(form: type[T], value: object, path: str, tool: str) -> T:
    """`value` as `form`. Raises `CbbenchError` naming the first part that does not fit."""
    try:
        return TypeAdapter(form).validate_python(value)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "the file"
        raise CbbenchError(
            f"cannot use {path} as a result of {tool}: {where}: {first['msg']}; expected the file "
            "as the tool wrote it"
        ) from None


def one_round(values: Iterable[tuple[str, float | None]]) -> dict[str, Values]:
    """Each metric's only value; what is unknown is left out."""
    return {name: (value,) for name, value in values if value is not None}


def summaries(
    metric: str, found: Mapping[str, float | None], factor: float
) -> list[tuple[str, float | None]]:
    """`found` by summary (`mean`, `p50`, ...) in the tool's unit; `factor` makes seconds of it."""
    return [
        (f"{metric}.{summary}", None if value is None else value * factor)
        for summary, value in found.items()
    ]


def rate_of(value: float | str | None) -> Rate:
    """A request rate as tools write it: a number, `inf`, or nothing."""
    if isinstance(value, str):
        return "inf" if value.lower() in ("inf", "infinity") else None
    if value is None or math.isnan(value):
        return None
    return "inf" if math.isinf(value) else value
