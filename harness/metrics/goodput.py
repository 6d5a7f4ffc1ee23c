"""Service-level objectives: how they are written, and which requests met them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from engines.api import CbbenchError
from engines.registry import unknown_name
from harness.metrics.latency import e2e_s, itl_samples_s, max_stall_s, tpot_s, ttft_s
from harness.records.schema import RequestRecord

_EXPECTED: Final = "expected NAME:MILLISECONDS,... as in 'ttft:500,tpot:50,e2el:5000'"
_SMALL_MS: Final = 1.0


@dataclass(frozen=True, slots=True)
class Slo:
    """One bound: a request meets it when its value is at most `bound_s`."""

    name: str
    bound_s: float


@dataclass(frozen=True, slots=True)
class Goodput:
    """All bounds of a run; without any there is no goodput. `warnings` are for the user."""

    slos: tuple[Slo, ...] = ()
    warnings: tuple[str, ...] = ()

    def describe(self) -> str:
        return ", ".join(f"{slo.name} <= {slo.bound_s * 1e3:g} ms" for slo in self.slos)


@dataclass(frozen=True, slots=True)
class Attainment:
    """`excluded` requests were cut off by the run's end before they had missed a bound."""

    good: int
    judged: int
    excluded: int


def parse_goodput(text: str | None) -> Goodput:
    """Reads `ttft:500,tpot:50` (milliseconds). Raises `CbbenchError` for names or values."""
    slos: list[Slo] = []
    warnings = []
    for part in (text or "").split(","):
        if not part.strip():
            continue
        name, _, value = (piece.strip() for piece in part.partition(":"))
        if name not in _MET:
            raise unknown_name("SLO", name, list(_MET))
        if any(slo.name == name for slo in slos):
            raise CbbenchError(f"SLO {name!r} is given twice in {text!r}; give each once")
        bound_ms = _milliseconds(part.strip(), value)
        if bound_ms < _SMALL_MS:
            warnings.append(f"SLO {name}:{value} means {bound_ms:g} ms; write {name}:500 for 0.5 s")
        slos.append(Slo(name, bound_ms / 1e3))
    if text is not None and not slos:
        raise CbbenchError(f"no SLO in {text!r}; {_EXPECTED}")
    return Goodput(tuple(slos), tuple(warnings))


def judge(requests: Sequence[RequestRecord], goodput: Goodput, end_s: float) -> Attainment:
    """Counts the good among those offered; `end_s` is when the run ended."""
    good = excluded = 0
    for request in requests:
        if request.status == "ok":
            good += all(_MET[slo.name](request, slo.bound_s) for slo in goodput.slos)
        elif request.status == "cancelled" and not any(
            _already_missed(request, slo, end_s) for slo in goodput.slos
        ):
            excluded += 1
    return Attainment(good, len(requests) - excluded, excluded)


def _milliseconds(part: str, value: str) -> float:
    try:
        bound_ms = float(value)
    except ValueError:
        bound_ms = math.nan
    if not 0 < bound_ms < math.inf:
        raise CbbenchError(f"SLO {part!r} has no positive, finite bound; {_EXPECTED}")
    return bound_ms


def _ttft_met(request: RequestRecord, bound_s: float) -> bool:
    value = ttft_s(request)
    return value is not None and value <= bound_s


def _tpot_met(request: RequestRecord, bound_s: float) -> bool:
    """With fewer than two tokens it is met; with all in one event E2E / n is judged."""
    value = tpot_s(request)
    if value is None:
        return request.output_tokens < 2 or _per_token_met(request, bound_s)
    return value <= bound_s


def _itl_met(request: RequestRecord, bound_s: float) -> bool:
    """Each of the request's ITL samples meets the bound; without any, as TPOT."""
    samples = itl_samples_s(request)
    if not samples.size:
        return _tpot_met(request, bound_s)
    return bool(samples.max() <= bound_s)


def _stall_met(request: RequestRecord, bound_s: float) -> bool:
    value = max_stall_s(request)
    return value is None or value <= bound_s


def _e2el_met(request: RequestRecord, bound_s: float) -> bool:
    value = e2e_s(request)
    return value is not None and value <= bound_s


def _per_token_met(request: RequestRecord, bound_s: float) -> bool:
    value = e2e_s(request)
    return value is not None and value / request.output_tokens <= bound_s


_MET: Final[Mapping[str, Callable[[RequestRecord, float], bool]]] = {
    "ttft": _ttft_met,
    "tpot": _tpot_met,
    "itl": _itl_met,
    "stall": _stall_met,
    "e2el": _e2el_met,
}


def _already_missed(request: RequestRecord, slo: Slo, end_s: float) -> bool:
    """Whether nothing that could still have come would have met the bound."""
    if not request.arrived:
        return False
    waited_s = end_s - request.scheduled_s
    if slo.name == "e2el":
        return waited_s > slo.bound_s
    if request.first_token_s is None:
        return slo.name == "ttft" and waited_s > slo.bound_s
    if slo.name == "ttft":
        return not _ttft_met(request, slo.bound_s)
    if slo.name == "tpot":
        most = request.max_tokens
        decoding_s = end_s - request.first_token_s
        return most is not None and most > 1 and decoding_s / (most - 1) > slo.bound_s
    if slo.name == "stall":
        open_gap_s = end_s - request.token_times_s[-1]
        return open_gap_s > slo.bound_s or not _stall_met(request, slo.bound_s)
    samples = itl_samples_s(request)
    return bool(samples.size and samples.max() > slo.bound_s)
