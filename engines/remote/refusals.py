"""What a request has come to when the answer's HTTP status is not 200.

Pure, like the reading of streams. A prompt that could never fit is the request's fault (rejected);
everything else is the server's, or the connection's (failed).
"""

from __future__ import annotations

import json
import re
from typing import Final

from engines.api import Status
from engines.remote.completion import error_message, shortened

_LENGTH_STATUSES: Final = (400, 413, 422)
_OVERLOAD_STATUSES: Final = (429, 503)
_ABOUT_LENGTH: Final = re.compile(
    r"context[_ ]?(length|size|window)|\bcontext of\b"
    r"|max[_ ]?(model|seq|sequence|input|total)[_ ]?len"
    r"|max(imum)? (model |input |sequence )?length|\btoo long\b|longer than the (model|context)"
    r"|(prompt|input|max_tokens|max_new_tokens|tokens)\b.*\b(exceeds?|too large|must be <=)",
    re.IGNORECASE | re.DOTALL,
)


def refusal(http_status: int, body: bytes) -> tuple[Status, str]:
    """Status and reason of a request that was answered with `http_status` and `body`."""
    message = _message(body)
    reason = f"HTTP {http_status}" + (f": {message}" if message else "")
    if http_status in _LENGTH_STATUSES and _ABOUT_LENGTH.search(message):
        return "rejected", reason
    if http_status in _OVERLOAD_STATUSES:
        return "failed", f"overload, {reason}"
    return "failed", reason


def _message(body: bytes) -> str:
    """The sentence in an error's body: OpenAI's shape, another one, or plain text."""
    text = body.decode(errors="replace")
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return shortened(text)
    if isinstance(value, dict):
        code = value["error"].get("code") if isinstance(value.get("error"), dict) else None
        message = error_message(value)
        known = isinstance(code, str) and code not in message
        return f"{message} ({code})" if known else message
    return shortened(text)
