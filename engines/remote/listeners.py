"""Which processes of this machine listen at an address."""

from __future__ import annotations

from typing import Final
from urllib.parse import urlsplit

import psutil

from engines.remote.options import is_loopback

_PORTS: Final = {"http": 80, "https": 443}


def listeners(root: str) -> tuple[int, ...]:
    """Their ids, in order; none for an address elsewhere, or where the system does not tell."""
    if not is_loopback(root):
        return ()
    parts = urlsplit(root)
    port = parts.port or _PORTS.get(parts.scheme)
    try:
        sockets = psutil.net_connections(kind="tcp")
    except (psutil.Error, OSError):
        return ()
    pids = {s.pid for s in sockets if s.status == psutil.CONN_LISTEN and s.laddr.port == port}
    return tuple(sorted(pid for pid in pids if pid is not None))
