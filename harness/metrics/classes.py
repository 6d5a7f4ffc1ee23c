"""Which class a request belongs to: its component's label, else short or long by its schedule."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Final

from harness.records.schema import RequestRecord

SHORT: Final = "short"
LONG: Final = "long"
ONLY: Final = "all"


def request_classes(requests: Sequence[RequestRecord]) -> list[str]:
    """A class for each request, from what was scheduled, so that engines agree on it.

    Without a label: scheduled prompt + output above the median is long, else short; when all
    lengths are equal there is one class.
    """
    if not requests:
        return []
    lengths = [request.prompt_tokens + (request.max_tokens or 0) for request in requests]
    middle = median(lengths)
    one_length = min(lengths) == max(lengths)
    return [
        request.label or (ONLY if one_length else LONG if length > middle else SHORT)
        for request, length in zip(requests, lengths, strict=True)
    ]
