"""What the server says of itself before a run: its models, its context, whether it takes ids.

A server that does not answer is no mistake: the run then shows that nothing was ok.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from http.client import HTTPException
from typing import Final

from engines.api import CbbenchError, Request
from engines.remote.completion import shortened
from harness.locust_load.bodies import ApiKey, BodyForm, headers
from harness.locust_load.connections import Connections
from harness.locust_load.options import Api

_PATIENCE_S: Final = 30.0
_LONGEST: Final = 2**20


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """`models` of `None`: the server does not tell. `max_model_len` is the asked model's."""

    models: tuple[str, ...] | None
    max_model_len: int | None = None


def ask_models(connections: Connections, key: ApiKey, model: str) -> ServerFacts:
    """Raises `CbbenchError` when the server tells its models and `model` is not among them."""
    try:
        http_status, body = _get(connections, "GET", "/v1/models", b"", key)
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


def takes_token_ids(connections: Connections, key: ApiKey, api: Api, model: str) -> bool:
    """Asks for one token after a prompt of ids; a server that is down is taken to."""
    if api == "chat":
        return False
    form = BodyForm(api, model, "ids")
    trial = Request("probe", (9, 10, 11), 1)
    try:
        http_status, _ = _get(
            connections, "POST", connections.path_prefix + form.path, form.body(trial), key
        )
    except (OSError, HTTPException):
        return True
    return http_status not in (400, 422)


def _get(
    connections: Connections, method: str, path: str, body: bytes, key: ApiKey
) -> tuple[int, bytes]:
    connection = connections.take()
    try:
        connection.send(method, path, body, headers(key))
        http_status, _ = connection.await_head(_PATIENCE_S)
        parts: list[bytes] = []
        while part := connection.read(_PATIENCE_S):
            parts.append(part)
            if sum(map(len, parts)) > _LONGEST:
                raise HTTPException("the answer is too long")
        return http_status, b"".join(parts)
    finally:
        connections.give_back(connection)
