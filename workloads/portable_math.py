"""Logarithm and exponential from IEEE additions, multiplications and divisions alone.

The C library's own differ in the last bit between platforms and versions, and a workload's hash
must not. Accurate to a few units in the last place, for positive finite arguments; not fast.
"""

from __future__ import annotations

import math
from typing import Final

_LN2: Final = 0.6931471805599453
_LN2_HIGH: Final = 0.693147180369123816490  # its last bits are zero: exponent * high is exact
_LN2_LOW: Final = 1.90821492927058770002e-10
_SQRT_HALF: Final = 0.7071067811865476
_LOG_TERMS: Final = tuple(1.0 / (2 * k + 1) for k in range(12))
_EXP_TERMS: Final = tuple(1.0 / math.factorial(k) for k in range(18))


def log(x: float) -> float:
    """The natural logarithm, as 2 artanh((m - 1) / (m + 1)) of the mantissa m."""
    mantissa, exponent = math.frexp(x)
    if mantissa < _SQRT_HALF:
        mantissa, exponent = 2.0 * mantissa, exponent - 1
    ratio = (mantissa - 1.0) / (mantissa + 1.0)
    square, series = ratio * ratio, 0.0
    for term in reversed(_LOG_TERMS):
        series = series * square + term
    return exponent * _LN2_HIGH + (2.0 * ratio * series + exponent * _LN2_LOW)


def exp(x: float) -> float:
    """The exponential; 0 where it would underflow. `x` below about 709."""
    if x < -745.0:
        return 0.0
    exponent = math.floor(x / _LN2 + 0.5)
    rest, series = (x - exponent * _LN2_HIGH) - exponent * _LN2_LOW, 0.0
    for term in reversed(_EXP_TERMS):
        series = series * rest + term
    return math.ldexp(series, exponent)
