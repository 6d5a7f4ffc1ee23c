"""How many files this process may have open: a connection is one."""

from __future__ import annotations

import resource


def allow_open_files(wanted: int) -> int:
    """Raises the soft limit towards `wanted`, as far as the hard one lets it; what holds then."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return wanted
    reachable = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (reachable, hard))
    return reachable
