"""A digest of run.json over its own content, so that a number edited by hand is seen.

Guards against slips and against numbers made prettier, not against who computes it anew.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any, Final

DIGEST: Final = "digest"


def digest_of(content: Mapping[str, Any]) -> str:
    """SHA-256 of all but the digest itself; key order, spaces and 1.0 for 1 do not count."""
    counted = {key: _plain(value) for key, value in content.items() if key != DIGEST}
    text = json.dumps(counted, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _plain(value: Any) -> Any:
    """Whole numbers as integers: a tool that writes the file again may write 1 for 1.0."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return value
