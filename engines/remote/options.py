"""The settings of a remote engine, read once from a spec's text into one frozen value.

Opens no connection and reads no key: only the name of the variable that holds it is known here.
"""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, cast
from urllib.parse import urlsplit

from engines.api import CbbenchError, JsonValue

SCHEDULE_HEADER: Final = "X-Cbbench-Scheduled"  # time.perf_counter() at which a request was due
_SHOWN_WITH: Final = "as in http://127.0.0.1:8000/v1"


@dataclass(frozen=True, slots=True)
class RemoteOptions:
    """`None` where the server, or the run, is asked. Times in seconds.

    `root` is the address without `/v1`. `send_token_ids` of `None` means ids on completions and
    texts on chat. `extensions` are the fields beyond OpenAI's that most servers know.
    """

    root: str
    model: str | None = None
    api: str = "completions"
    api_key_env: str | None = None
    send_token_ids: bool | None = None
    return_token_ids: bool = False
    extensions: bool = True
    extra_body: Mapping[str, Any] = field(default_factory=dict)
    max_connections: int | None = None
    idle_timeout: float = 120.0
    grace: float = 300.0
    connect_timeout: float = 10.0
    keepalive: float = 4.0
    connection_retries: int = 0
    client_processes: int | None = None
    certify: bool = True
    scrape: bool = True
    serves: str | None = None
    vocab_size: int | None = None
    max_model_len: int | None = None
    tokenizer: str | None = None

    @property
    def path(self) -> str:
        return "/v1/chat/completions" if self.api == "chat" else "/v1/completions"

    @property
    def sends_ids(self) -> bool:
        return self.api != "chat" and self.send_token_ids is not False


def read_options(settings: Mapping[str, JsonValue]) -> RemoteOptions:
    """From parsed settings; keys of other engines' entries are passed over."""
    values: dict[str, Any] = {
        key: value for key, value in settings.items() if key in RemoteOptions.__slots__
    }
    options = RemoteOptions(
        **{
            **values,
            "root": root_of(cast(str, settings["base_url"])),
            "extra_body": json.loads(cast(str, settings.get("extra_body") or "{}")),
        }
    )
    if options.api == "chat" and options.send_token_ids:
        raise CbbenchError(
            "send_token_ids=true and api=chat were given, but chat takes texts only; "
            "use api=completions, or leave send_token_ids out"
        )
    return options


def root_of(base_url: str) -> str:
    """The address without a trailing `/v1`, whichever way it was given."""
    return base_url.rstrip("/").removesuffix("/v1").rstrip("/")


def address(text: str) -> str:
    """An http(s) URL without credentials, query or fragment."""
    try:
        parts = urlsplit(text)
        port_fits = parts.port is None or parts.port > 0
    except ValueError:
        raise ValueError(f"an http or https address, {_SHOWN_WITH}") from None
    if parts.scheme not in ("http", "https") or not parts.hostname or not port_fits:
        raise ValueError(f"an http or https address, {_SHOWN_WITH}")
    if parts.username is not None or parts.password is not None:
        raise ValueError("an address without a user; name a key's variable with api_key_env")
    if parts.query or parts.fragment:
        raise ValueError(f"an address without ? and #, {_SHOWN_WITH}")
    return text


def is_loopback(root: str) -> bool:
    """Whether the address can only mean this machine."""
    host = urlsplit(root).hostname or ""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def json_object(text: str) -> str:
    """A JSON object, or `@FILE` with one; the text of the object."""
    try:
        source = Path(text[1:]).read_text(encoding="utf-8") if text.startswith("@") else text
        value = json.loads(source)
    except (OSError, ValueError):
        raise ValueError("a JSON object, or @FILE with one") from None
    if not isinstance(value, dict):
        raise ValueError("a JSON object, or @FILE with one")
    return json.dumps(value)


def variable_name(text: str) -> str:
    """The name of an environment variable, not a key itself."""
    if not text.isidentifier():
        raise ValueError("the name of an environment variable that holds the key")
    return text
