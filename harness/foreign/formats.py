"""Which tool wrote a result file. By what only that tool's file has, never by its name."""

from __future__ import annotations

import json
from typing import Final

from engines.api import CbbenchError
from harness.compare.case import Source
from harness.foreign import aiperf, guidellm, locust, vllm

_READERS: Final = (
    (vllm.recognised, vllm.read_vllm),
    (guidellm.recognised, guidellm.read_guidellm),
    (aiperf.recognised, aiperf.read_aiperf),
    (locust.recognised, locust.read_locust),
)
EXPECTED: Final = (
    "expected the folder or run.json of a cbbench run, or the JSON of vllm bench serve, guidellm, "
    "aiperf or locust, or locust's ..._stats.csv"
)


def read_foreign(text: str, path: str, name: str) -> Source:
    """Raises `CbbenchError` for a file of none of the tools, or a broken one."""
    if locust.recognised_csv(text):
        return locust.read_locust_csv(text, path, name)
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        raise CbbenchError(f"cannot use {path}: it is not JSON; {EXPECTED}") from None
    for recognised, read in _READERS:
        if recognised(value):
            return read(value, path, name)
    raise CbbenchError(f"cannot use {path}: no known tool writes such a file; {EXPECTED}")
