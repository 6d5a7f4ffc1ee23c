"""How hard a workload is pushed: all at once, at a rate, or relative to the best engine's rate.

Decides the absolute schedule of a drawn workload. Does not measure the best rate: the harness
does that and resolves a `RelativeLoad` with it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from engines.api import CbbenchError, Request

if TYPE_CHECKING:
    from workloads.workload import Workload


@dataclass(frozen=True, slots=True)
class Load:
    """One load point, resolved. `request_rate` is in requests a second; `inf` is all at once.

    A trace played at its own times has the trace's mean rate here.
    """

    name: str
    request_rate: float
    max_concurrency: int | None = None

    def __post_init__(self) -> None:
        check_rate(self.request_rate)
        check_concurrency(self.max_concurrency)


@dataclass(frozen=True, slots=True)
class RelativeLoad:
    """A load at a fraction of the highest request throughput that any engine of the run reached."""

    name: str
    fraction_of_best: float
    max_concurrency: int | None = None

    def __post_init__(self) -> None:
        if not 0 < self.fraction_of_best < math.inf:
            raise CbbenchError(
                f"a relative load of {self.fraction_of_best:g} times the best rate cannot be "
                "played; give a fraction > 0, as in 0.7"
            )
        check_concurrency(self.max_concurrency)

    def resolve(self, best_req_s: float) -> Load:
        """The load at this fraction of `best_req_s`, which is in requests a second."""
        return Load(self.name, self.fraction_of_best * best_req_s, self.max_concurrency)


AnyLoad = Load | RelativeLoad


def all_at_once(max_concurrency: int | None = None) -> Load:
    """Everything arrives at t0; with a cap, a pure closed loop of that many clients."""
    name = "all-at-once" if max_concurrency is None else f"closed-loop-{max_concurrency}"
    return Load(name, math.inf, max_concurrency)


def at_rate(request_rate: float, max_concurrency: int | None = None) -> Load:
    """A load named after its rate, `2 req/s`; `inf` is `all_at_once`."""
    if request_rate == math.inf:
        return all_at_once(max_concurrency)
    name = f"{request_rate:g} req/s"
    return Load(name + _cap_suffix(max_concurrency), request_rate, max_concurrency)


def relative(
    fraction: float, burstiness: float = 1.0, max_concurrency: int | None = None
) -> RelativeLoad:
    """A relative load named after its arrivals: `poisson-70%`, `constant-70%`, `gamma(0.5)-70%`."""
    process = {1.0: "poisson", math.inf: "constant"}.get(burstiness, f"gamma({burstiness:g})")
    name = f"{process}-{100 * fraction:g}%"
    return RelativeLoad(name + _cap_suffix(max_concurrency), fraction, max_concurrency)


def own_times(workload: Workload, max_concurrency: int | None = None) -> Load:
    """The load `trace`: the arrivals exactly as the trace has them."""
    name = "trace" + _cap_suffix(max_concurrency)
    return Load(name, workload.base_rate, max_concurrency)


def loads_for(
    workload: Workload,
    request_rates: Sequence[float] = (),
    max_concurrency: int | None = None,
) -> tuple[AnyLoad, ...]:
    """The loads at these rates, or without any the workload's default loads; all with the cap."""
    if request_rates:
        return tuple(at_rate(rate, max_concurrency) for rate in request_rates)
    if max_concurrency is None:
        return workload.default_loads
    return tuple(_capped(load, max_concurrency) for load in workload.default_loads)


def _capped(load: AnyLoad, max_concurrency: int) -> AnyLoad:
    if isinstance(load, Load) and load.request_rate == math.inf:
        return all_at_once(max_concurrency)
    name = load.name.removesuffix(_cap_suffix(load.max_concurrency))
    return replace(load, name=name + _cap_suffix(max_concurrency), max_concurrency=max_concurrency)


def _cap_suffix(max_concurrency: int | None) -> str:
    return "" if max_concurrency is None else f", at most {max_concurrency}"


def at_load(workload: Workload, load: Load) -> tuple[Request, ...]:
    """The absolute schedule: the same requests with `scheduled_s` in seconds from t0.

    Drawn arrivals are at unit rate and are divided by the rate. A trace keeps its own pattern and
    is stretched so that its mean rate is the load's; at its own mean rate it is left as it is.
    """
    if load.request_rate == math.inf:
        return tuple(replace(request, scheduled_s=0.0) for request in workload.requests)
    if load.request_rate == workload.base_rate:
        return workload.requests
    if workload.base_rate == math.inf:
        raise CbbenchError(
            f"workload {workload.name!r} has all its arrivals at one instant and cannot be played "
            f"at {load.request_rate:g} req/s; leave the request rate out"
        )
    factor = load.request_rate / workload.base_rate
    return tuple(
        replace(request, scheduled_s=request.scheduled_s / factor) for request in workload.requests
    )


def check_rate(request_rate: float) -> None:
    """Raises `CbbenchError` for a rate that is 0, negative or not a number."""
    if not request_rate > 0:
        raise CbbenchError(
            f"a request rate of {request_rate:g} cannot be played; "
            "give a number of requests a second > 0, or inf for all at once"
        )


def check_concurrency(max_concurrency: int | None) -> None:
    """Raises `CbbenchError` for a cap below 1."""
    if max_concurrency is not None and max_concurrency < 1:
        raise CbbenchError(
            f"a maximum concurrency of {max_concurrency} lets nothing run; "
            "give a whole number >= 1, or leave it out for no cap"
        )
