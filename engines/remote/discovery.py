"""What a server says of itself before the first request: its models, its kind, its version.

Nothing here can fail a run: a server that is down, or that answers with nonsense, leaves the facts
unknown, and its requests will tell what is wrong.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

import httpx

from engines.remote.completion import shortened
from engines.remote.connections import TRANSPORT_ERRORS
from engines.remote.exchange import trouble
from engines.remote.pages import fetch

Kind = Literal["cbbench", "vllm", "sglang", "tgi", "unknown"]
_PATIENCE_S: Final = 5.0
_LONGEST_TOLD: Final = 80
_OWNERS: Final[Mapping[str, Kind]] = {"cbbench": "cbbench", "vllm": "vllm", "sglang": "sglang"}
_RESETS: Final[Mapping[Kind, str]] = {
    "vllm": "/reset_prefix_cache",
    "sglang": "/flush_cache",
}


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """`problem` is a sentence when the server did not say anything that could be used.

    `keeps_alive`: whether a connection may carry a second request.
    """

    kind: Kind = "unknown"
    models: tuple[str, ...] = ()
    max_model_len: int | None = None
    keeps_alive: bool = False
    problem: str = ""


async def discover(client: httpx.AsyncClient, root: str, model: str | None) -> ServerFacts:
    """Asks `/v1/models`; of the entries, that of `model` counts, else the first."""
    try:
        page = await fetch(client, "GET", f"{root}/v1/models", _PATIENCE_S)
    except TRANSPORT_ERRORS as error:
        return ServerFacts(problem=trouble("the server did not answer before the run", error))
    keeps_alive = page.headers.get("connection", "").lower() != "close"
    if page.status != 200:
        told = f"HTTP {page.status}"
        return ServerFacts(keeps_alive=keeps_alive, problem=f"the server lists no models: {told}")
    entries = _entries(page.body)
    if not entries:
        told = shortened(page.text, _LONGEST_TOLD)
        return ServerFacts(keeps_alive=keeps_alive, problem=f"the server lists no models: {told}")
    chosen = next((entry for entry in entries if entry["id"] == model), entries[0])
    length = chosen.get("max_model_len")
    return ServerFacts(
        kind=_OWNERS.get(str(chosen.get("owned_by", "")), "unknown"),
        models=tuple(str(entry["id"]) for entry in entries),
        max_model_len=length if isinstance(length, int) and length > 1 else None,
        keeps_alive=keeps_alive,
    )


async def reset_caches(client: httpx.AsyncClient, root: str, kind: Kind) -> bool | None:
    """Asks a server of a known kind to empty its prefix cache: whether it did, if it has a way."""
    path = _RESETS.get(kind)
    if path is None:
        return None
    try:
        page = await fetch(client, "POST", f"{root}{path}", _PATIENCE_S)
    except TRANSPORT_ERRORS:
        return False
    return page.status == 200


def _entries(content: bytes) -> list[Mapping[str, Any]]:
    try:
        value = json.loads(content)
    except (ValueError, RecursionError):
        return []
    data = value.get("data") if isinstance(value, dict) else None
    if not isinstance(data, list):
        return []
    return [entry for entry in data if isinstance(entry, dict) and entry.get("id")]
