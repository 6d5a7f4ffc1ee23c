"""Certificates as lines for a terminal. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from engines.remote.certificate import LAG_LIMIT_S, Certificate
from harness.show.report.words import milliseconds, number

_WIDTH: Final = 12
TITLES: Final = "".join(
    title.rjust(_WIDTH)
    for title in ("asked/s", "sent/s", "lag p50 ms", "p99 ms", "max ms", "streams", "server late")
)


def certificate_line(found: Certificate) -> str:
    """Under `TITLES`; how late the server itself was stands last, in milliseconds."""
    values = (
        number(found.asked_req_s),
        number(found.achieved_req_s),
        milliseconds(found.lag_p50_s),
        milliseconds(found.lag_p99_s),
        milliseconds(found.lag_max_s),
        str(found.most_streams),
        milliseconds(found.server_late_s),
    )
    failed = f"  {found.failed} failed" if found.failed else ""
    return "".join(value.rjust(_WIDTH) for value in values) + failed


def summary_line(found: Sequence[Certificate]) -> str:
    kept_up = [certificate.asked_req_s or 0.0 for certificate in found if certificate.passed]
    limit = f"p99 lag under {LAG_LIMIT_S * 1e3:g} ms"
    if not kept_up:
        return f"no rate was kept up with ({limit})"
    more = "" if found[-1].passed is False else "; higher rates were not tried"
    return f"highest rate kept up with: {number(max(kept_up))} requests a second ({limit}{more})"
