"""When requests arrive, at unit rate: gaps of mean 1 that a load later divides by its rate.

The first request arrives at 0, since t0 is the first scheduled arrival: n requests have n - 1
gaps. Does not know the rate that the arrivals will be played at.
"""

from __future__ import annotations

import math
from itertools import accumulate

from engines.api import CbbenchError
from workloads.randomness import Purpose, Stream


def check_burstiness(burstiness: float) -> None:
    """Raises `CbbenchError` for a burstiness that is 0, negative or not a number."""
    if not burstiness > 0:
        raise CbbenchError(
            f"a burstiness of {burstiness:g} has no arrivals; give a number > 0: 1 for Poisson, "
            "less for bursts, more for regularity, inf for constant gaps"
        )


def unit_arrivals(count: int, burstiness: float, seed: int) -> list[float]:
    """`count` arrival times from 0 on, with gaps of mean 1.

    `burstiness` is the shape of the gamma distribution of the gaps, whose coefficient of
    variation is 1/sqrt(burstiness): 1 is a Poisson process, `inf` constant gaps. Fewer arrivals
    of the same seed are the beginning of more.
    """
    check_burstiness(burstiness)
    stream = Stream(seed, Purpose.ARRIVALS)
    gaps = (_gap(stream, burstiness) for _ in range(count - 1))
    return list(accumulate(gaps, initial=0.0))[:count]


def _gap(stream: Stream, burstiness: float) -> float:
    if burstiness == math.inf:
        return 1.0
    if burstiness == 1.0:
        return stream.exponential()
    return stream.gamma(burstiness)
