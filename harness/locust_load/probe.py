"""What the server says of itself before a run: its models, its context, whether it takes ids.

A server that does not answer is no mistake: the run then shows that nothing was ok.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from http.client import HTTPException
from typing import Final

from engines.api import CbbenchError, Request
from engines.remote.body import BodyWriter
from engines.remote.completion import shortened
from harness.locust_load.connections import Connections
from harness.locust_load.key import ApiKey
from harness.locust_load.options import LoadOptions

_PATIENCE_S: Final = 30.0
_METRICS_PATIENCE_S: Final = 2.0
_LONGEST: Final = 4 * 2**20
_PROBE: Final = (9, 10, 11)


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """`models` of `None`: the server does not tell. `max_model_len` is the asked model's."""

    models: tuple[str, ...] | None
    max_model_len: int | None = None


def ask_models(connections: Connections, key: ApiKey, model: str) -> ServerFacts:
    """Raises `CbbenchError` when the server tells its models and `model` is not among them."""
    try:
        http_status, body = _get(
            connections, "GET", f"{connections.path_prefix}/v1/models", b"", key
        )
        listed = json.loads(body)["data"] if http_status == 200 else None
        found = {str(item["id"]): item for item in listed} if listed is not None else None
    except (OSError, HTTPException, ValueError, KeyError, TypeError):
        found = None
    if found is None:
        return ServerFacts(None)
    if model not in found:
        served = ", ".join(found) or "none"
        raise CbbenchError(
            f"the server does not serve model {model!r}; it serves: {shortened(served)}; "
            "give one of these with --model"
        )
    longest = found[model].get("max_model_len")
    is_length = isinstance(longest, int) and not isinstance(longest, bool) and longest > 1
    return ServerFacts(tuple(found), longest if is_length else None)


def takes_token_ids(connections: Connections, key: ApiKey, options: LoadOptions) -> bool:
    """Asks for one token after a prompt of ids; a server that is down is taken to."""
    if options.api == "chat":
        return False
    trial = BodyWriter(options.remote("ids"), options.model).write(Request("probe", _PROBE, 1))
    path = connections.path_prefix + options.path
    try:
        http_status, _ = _get(connections, "POST", path, trial, key)
    except (OSError, HTTPException):
        return True
    return http_status not in (400, 422)


def ask_metrics(host: str, key: ApiKey) -> str:
    """The server's own metrics page; empty where there is none."""
    connections = Connections(host)
    path = f"{connections.path_prefix}/metrics"
    try:
        http_status, page = _get(connections, "GET", path, b"", key, _METRICS_PATIENCE_S)
    except (OSError, HTTPException):
        return ""
    finally:
        connections.close()
    return page.decode(errors="replace") if http_status == 200 else ""


def _get(
    connections: Connections,
    method: str,
    path: str,
    body: bytes,
    key: ApiKey,
    patience_s: float = _PATIENCE_S,
) -> tuple[int, bytes]:
    connection = connections.take()
    try:
        connection.send(method, path, body, key.headers(), patience_s)
        http_status, _ = connection.await_head(patience_s)
        parts: list[bytes] = []
        while part := connection.read(patience_s):
            parts.append(part)
            if sum(map(len, parts)) > _LONGEST:
                raise HTTPException("the answer is too long")
        return http_status, b"".join(parts)
    finally:
        connections.give_back(connection)
